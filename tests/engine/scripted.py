"""An engine that says exactly what a test wants, when it wants it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from engine.base import EngineDeadError, EngineFrame
from engine.dispatcher import NO_STATS
from proto.fault import Fault, FaultError
from proto.ticket import Ticket
from proto.work import Work
from proto.worker import WarmResult


class Scripted:
    """Says exactly what a test puts into its queue; an exception in the queue is its death."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[EngineFrame | Exception | None] = asyncio.Queue()
        self.submitted: list[Work] = []
        self.aborted: list[str] = []
        self.released: list[str] = []
        self.handed_over: list[str] = []
        self.limits: list[tuple[int, int]] = []
        self.nothing_to_release = False
        self.dead = False
        self.refuses: Fault | None = None
        self.breaks: Exception | None = None
        self.abort_may_end = asyncio.Event()
        self.abort_may_end.set()

    async def start(self) -> Any:
        raise NotImplementedError

    async def stop(self) -> None: ...

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        self._alive()
        if self.refuses is not None:
            raise FaultError(self.refuses)
        if self.breaks is not None:
            raise self.breaks
        self.submitted.append(work)

    async def abort(self, request_id: str) -> None:
        self._alive()
        self.aborted.append(request_id)
        await self.abort_may_end.wait()

    def hand_over(self, request_id: str) -> None:
        self._alive()
        self.handed_over.append(request_id)

    def limit_step(self, tokens: int, chunk_tokens: int) -> None:
        self._alive()
        self.limits.append((tokens, chunk_tokens))

    async def release(self, ticket_id: str) -> bool:
        self._alive()
        if self.nothing_to_release:
            return False
        self.released.append(ticket_id)
        return True

    async def frames(self) -> AsyncIterator[EngineFrame]:
        while (news := await self.queue.get()) is not None:
            if isinstance(news, Exception):
                self.dead = True
                raise news
            yield news

    def stats(self) -> Any:
        self._alive()
        return NO_STATS

    async def warm(self, peer: object) -> WarmResult:
        raise NotImplementedError

    def _alive(self) -> None:
        if self.dead:
            raise EngineDeadError("gone")
