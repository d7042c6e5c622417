"""The two ways to put an answer on the wire: events that begin with the first facts, or one document."""

from collections.abc import Callable
from typing import Any

import orjson
from starlette.types import Send

from gateway.http.errors import error_bytes, error_headers
from gateway.http.form import DONE, END, EVENT
from gateway.http.pulse import Pulse
from gateway.request.errors import RequestError

Headers = list[tuple[bytes, bytes]]

_EVENTS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Writer:
    """Knows whether the status line is out: after that an error can only be an event (invariant 5).

    `direct` is for what follows the head: a call a layer and token is what streams would pay otherwise.
    """

    __slots__ = ("_direct", "_pulse", "_send", "finished", "started")

    def __init__(self, send: Send, direct: Send | None = None) -> None:
        self._send = send
        self._direct = direct or send
        self._pulse: Pulse | None = None
        self.started = False
        self.finished = False

    async def start_events(
        self, headers: Headers, *, beat_s: float, write_s: float, stalled: Callable[[], object]
    ) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS + headers})
        self._pulse = Pulse(self._direct, beat_s=beat_s, write_s=write_s, stalled=stalled)

    async def events(self, data: bytes) -> None:
        assert self._pulse is not None
        await self._pulse.write(data)

    async def end_events(self, data: bytes) -> None:
        await self.quiet()
        await self._body(data + DONE)

    async def broken(self, error: RequestError) -> None:
        """An error event, and neither [DONE] nor an end of the body (B-23)."""
        await self.quiet()
        body = EVENT + error_bytes(error) + END
        await self._direct({"type": "http.response.body", "body": body, "more_body": True})

    async def document(self, body: dict[str, Any], headers: Headers) -> None:
        await self._whole(200, orjson.dumps(body), headers)

    async def error(self, error: RequestError) -> None:
        headers = [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
        await self._whole(error.status, error_bytes(error), headers)

    async def quiet(self) -> None:
        """Ends the heartbeat; harmless where there is none."""
        if self._pulse is not None:
            await self._pulse.stop()

    async def _whole(self, status: int, data: bytes, headers: Headers) -> None:
        self.started = True
        head: Headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
        await self._send({"type": "http.response.start", "status": status, "headers": head + headers})
        await self._body(data)

    async def _body(self, data: bytes) -> None:
        self.finished = True
        await self._direct({"type": "http.response.body", "body": data, "more_body": False})
