"""The outermost layer: ids, keys, and who answered what. Pure ASGI, so that disconnects pass through (B-35)."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import error_response, no_such_path
from gateway.http.exchange import Exchange, begin
from gateway.http.keys import OPEN_PATHS
from gateway.http.protocol import UNREAD
from gateway.http.surface import Surface
from gateway.request.errors import RequestError

#: No path here has one. Routes end with `$`, which a line feed may still follow: /drain%0a would drain.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Edge:
    """Puts the Exchange into the scope under "tandem" and its ids on the response."""

    def __init__(self, app: ASGIApp, surface: Surface) -> None:
        self._app = app
        self._surface = surface

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # as GET; the server leaves the body out
            scope = {**scope, "method": "GET"}
        exchange = begin(scope, self._surface.clock())
        exchange.direct = send
        exchange.policy = self._surface.policy
        scope["tandem"] = exchange
        marked = self._marking(scope, exchange, send)
        if scope["path"] in OPEN_PATHS:
            exchange.tenant = self._surface.keys.known(scope) or ""
        else:
            try:
                exchange.tenant = self._surface.keys.tenant(scope)
            except RequestError as error:
                response = error_response(error, {"www-authenticate": "Bearer"})
                await response(scope, receive, marked)
                return
        if _CONTROL.search(scope["path"]):
            await no_such_path(scope["method"], scope["raw_path"].decode("latin-1"))(scope, receive, marked)
            return
        exchange.cleared = self._surface.keys.cleared(exchange.tenant)
        await self._app(scope, receive, marked)

    def _marking(self, scope: Scope, exchange: Exchange, send: Send) -> Send:
        unread = scope.get("state", {}).get(UNREAD)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *exchange.headers()]
                if unread is not None and unread():
                    message["headers"].append((b"connection", b"close"))  # what follows is no request
                route = scope.get("route")
                self._surface.observer.responded(getattr(route, "path", "unmatched"), message["status"])
            await send(message)

        return marked
