"""uvicorn inside a process that has other things to do: its own listener, no signal handlers, a bounded end."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from gateway.http.connection import BrokenStreamError
from gateway.http.protocol import GatewayProtocol

#: After the drain: time for last bytes to leave before connections are cut.
CLOSE_S = 3
#: Longer than clients' and proxies' usual idle limits, so that they close first (B-26).
KEEP_ALIVE_S = 120
BACKLOG = 4096


@contextmanager
def listen(host: str, port: int, write_s: float) -> Iterator[socket.socket]:
    """Binds now, so that a port in use is an error before anything else has started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol; without that, the two writes
    # of every answer (head and body) wait 40 ms for each other. Accepted sockets inherit all of this.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A peer that takes no bytes for that long is gone, whatever TCP still hopes for.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(write_s * 1000))
        listener.bind((host, port))
        listener.setblocking(False)
        yield listener


class HttpServer:
    """Entered, it listens; left, it lets connections end for a moment and cuts the rest."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="none",
            http=GatewayProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CLOSE_S,
            backlog=BACKLOG,
        )
        self._server = _Server(config)
        self._listener = listener

    async def __aenter__(self) -> Self:
        logging.getLogger("uvicorn.error").addFilter(_quiet)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self.task = asyncio.create_task(self._server.serve([self._listener]), name="http")
        while not self._server.started:
            await asyncio.wait({self.task}, timeout=0.01)
            if self.task.done():
                self.task.result()
                raise RuntimeError("the HTTP server did not start")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        await asyncio.gather(self.task, return_exceptions=True)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, which drains first."""
        yield


def _quiet(record: logging.LogRecord) -> bool:
    """A stream broken on purpose is in the request log; the server need not report its exception, too."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, BrokenStreamError)
