"""Frames on their way to the one consumer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from engine.base import EngineDeadError, EngineFrame


class Outbox:
    """Bounded, so that an engine at zero cost does not run away from whoever reads it."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._frames: deque[EngineFrame] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._dead: str | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        return len(self._frames) >= self._capacity

    def put(self, frame: EngineFrame) -> None:
        self._frames.append(frame)
        self._filled.set()
        if len(self._frames) >= self._capacity:
            self._drained.clear()

    def take_back(self, request_id: str) -> None:
        """What nobody has read yet of a request that was aborted while it ran is never read."""
        self._frames = deque(
            tuple(output for output in frame if output.request_id != request_id) for frame in self._frames
        )

    async def room(self) -> None:
        await self._drained.wait()

    def fail(self, reason: str) -> None:
        """The consumer gets what is left, then EngineDeadError."""
        self._dead = reason
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def frames(self) -> AsyncIterator[EngineFrame]:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if len(self._frames) < self._capacity:
                    self._drained.set()
                if frame:
                    yield frame
            if self._dead is not None:
                raise EngineDeadError(self._dead)
            if self._closed:
                return
            self._filled.clear()
            await self._filled.wait()

    def _wake(self) -> None:
        self._filled.set()
        self._drained.set()
