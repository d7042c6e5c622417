"""Routes for keys that may operate the cluster."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from gateway.http.errors import plain_error
from gateway.http.exchange import of


class OperatorRoute(APIRoute):
    """Whoever may not use it is told so before anything more of the request is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            return await handle(request) if of(request.scope).cleared else _forbidden()

        return guarded


def _forbidden() -> Response:
    return plain_error(403, "This key may not operate the cluster. Name its tenant in `operators`.", "not_an_operator")
