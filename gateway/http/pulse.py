"""Keeps watch over one stream's writes: comments while it is silent, an end when the client takes nothing."""

import asyncio
from collections.abc import Callable

from starlette.types import Send

COMMENT = b": waiting\n\n"


class Pulse:
    """One timer a stream, never one a write: a write only notes the time."""

    __slots__ = (
        "_beat_s",
        "_beating",
        "_loop",
        "_send",
        "_stalled",
        "_task",
        "_timer",
        "_touched_s",
        "_write_s",
        "_writing",
    )

    def __init__(self, send: Send, *, beat_s: float, write_s: float, stalled: Callable[[], object]) -> None:
        self._send = send
        self._beat_s = beat_s
        self._write_s = write_s
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._touched_s = self._loop.time()
        self._writing = False
        self._beating = False
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(min(beat_s, write_s), self._look)

    async def write(self, data: bytes) -> None:
        self._touched_s = self._loop.time()
        self._writing = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._writing = False

    def _look(self) -> None:
        idle_s = self._loop.time() - self._touched_s
        if self._writing or self._beating:
            if idle_s >= self._write_s:
                self._stalled()
                return
            wait_s = self._write_s - idle_s
        elif idle_s >= self._beat_s:
            self._touched_s = self._loop.time()
            self._beating = True
            self._task = asyncio.ensure_future(self._beat())
            wait_s = min(self._beat_s, self._write_s)
        else:
            wait_s = self._beat_s - idle_s
        self._timer = self._loop.call_later(max(wait_s, 0.001), self._look)

    async def _beat(self) -> None:
        try:
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
        finally:
            self._beating = False

    async def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
