"""A route that is documented like any other and served without what FastAPI does around an endpoint."""

from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send


class DirectRoute(APIRoute):
    """For endpoints of one Request that answer with a Response: no dependencies, no parsing, no exit stacks.

    Exceptions reach the application's handlers all the same.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
