"""Runs requests on an engine and tells their outputs apart."""

import asyncio
from dataclasses import dataclass, field

from engine.base import Engine, EngineDeadError, EngineOutput
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import SequenceDelta, Work
from proto.worker import WorkerInfo
from tests.waiting import HANG_S


@dataclass(slots=True)
class Answer:
    outputs: list[EngineOutput] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for output in self.outputs for token in output.delta.tokens)

    @property
    def first(self) -> SequenceDelta:
        return self.outputs[0].delta

    @property
    def last(self) -> SequenceDelta:
        return self.outputs[-1].delta

    @property
    def ticket(self) -> Ticket:
        ticket = self.outputs[-1].ticket
        assert ticket is not None, self.last
        return ticket


class Driver:
    """The one consumer of an engine's frames."""

    def __init__(self, engine: Engine, info: WorkerInfo) -> None:
        self.engine = engine
        self.info = info
        self.frames = 0
        self.dead = asyncio.Event()
        self._queues: dict[str, asyncio.Queue[EngineOutput]] = {}
        self._names = 0
        self._task = asyncio.create_task(self._consume())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.engine.stop()

    async def _consume(self) -> None:
        try:
            async for frame in self.engine.frames():
                self.frames += 1
                for output in frame:
                    self._queues[output.request_id].put_nowait(output)
        except EngineDeadError:
            self.dead.set()

    def name(self) -> str:
        self._names += 1
        return f"{self.info.worker_id}-{self._names}"

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        self._queues[work.request_id] = asyncio.Queue()
        self.engine.submit(work, hold=hold, pull=pull)

    async def next(self, request_id: str) -> EngineOutput:
        async with asyncio.timeout(HANG_S):
            return await self._queues[request_id].get()

    def pending(self, request_id: str) -> int:
        return self._queues[request_id].qsize()

    async def run(
        self,
        tokens: tuple[int, ...],
        sampling: Sampling,
        *,
        hold: bool = False,
        pull: Ticket | None = None,
        salt: str = "",
    ) -> Answer:
        work = Work(self.name(), tokens, sampling, cache_salt=salt)
        self.submit(work, hold=hold, pull=pull)
        answer = Answer()
        while not answer.outputs or not answer.last.ended:
            answer.outputs.append(await self.next(work.request_id))
        return answer

    async def settled(self, blocks_used: int = 0) -> None:
        """Waits until the engine uses no more than so many blocks, and has nothing to do when it is to use none.

        Aborts reach the engine one by one: between two of them it may hold no block and
        have requests waiting.
        """
        async with asyncio.timeout(HANG_S):
            while not self._calm(blocks_used):  # noqa: ASYNC110  nothing tells when
                await asyncio.sleep(0.005)

    def _calm(self, blocks_used: int) -> bool:
        stats = self.engine.stats()
        return stats.blocks_used <= blocks_used and (blocks_used > 0 or not stats.running + stats.waiting)


def prefill_sampling() -> Sampling:
    return Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)


def greedy(max_tokens: int) -> Sampling:
    return Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
