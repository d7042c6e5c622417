"""An engine whose steps take exactly what a cost says, on a clock of its own."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from engine.base import EngineFrame, EngineOutput, EngineStats
from engine.simulated.cost import StepCost
from proto.ticket import Ticket
from proto.work import FinishReason, SequenceDelta, Work
from proto.worker import Topology, WarmResult, WorkerInfo
from tests.workers import worker_info

BLOCK = 16
INFO = worker_info(
    engine="clockwork",
    block_size_tokens=BLOCK,
    blocks_total=4096,
    max_model_len=8192,
    max_num_seqs=64,
    topology=Topology("here", device="clockwork"),
)


@dataclass(slots=True)
class _Sequence:
    work: Work
    generated: int = 0
    cached: int = 0


class ClockworkEngine:
    """Steps that decode every running sequence and compute one waiting prompt whole."""

    def __init__(self, cost: StepCost, *, caching: bool = True) -> None:
        self.now = 0.0
        self.stopped = False
        self._cost = cost
        self._caching = caching
        self._running: dict[str, _Sequence] = {}
        self._waiting: dict[str, _Sequence] = {}
        self._blocks: set[tuple[int, ...]] = set()
        self._work = asyncio.Event()

    async def start(self) -> WorkerInfo:
        return INFO

    async def stop(self) -> None:
        self.stopped = True

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        self._waiting[work.request_id] = _Sequence(work)
        self._work.set()

    async def abort(self, request_id: str) -> None:
        self._running.pop(request_id, None)
        self._waiting.pop(request_id, None)

    def hand_over(self, request_id: str) -> None: ...

    def limit_step(self, tokens: int, chunk_tokens: int) -> None: ...

    async def release(self, ticket_id: str) -> bool:
        return False

    async def warm(self, peer: WorkerInfo) -> WarmResult:
        return WarmResult(False, "", 0.0, 0.0)

    def stats(self) -> EngineStats:
        return EngineStats(4096, 0, len(self._running), len(self._waiting), 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0)

    async def frames(self) -> AsyncIterator[EngineFrame]:
        while True:
            await asyncio.sleep(0)
            if not self._running and not self._waiting:
                self._work.clear()
                await self._work.wait()
                continue
            yield self._step()

    def _step(self) -> EngineFrame:
        decodes = list(self._running.values())
        context = sum(len(sequence.work.tokens) + sequence.generated for sequence in decodes)
        chunks = []
        if self._waiting:
            sequence = self._waiting.pop(next(iter(self._waiting)))
            sequence.cached = self._cached(sequence.work.tokens)
            chunks = [(len(sequence.work.tokens) - sequence.cached, sequence.cached)]
            self._running[sequence.work.request_id] = sequence
        self.now += self._cost.step_s(len(decodes), context, chunks)
        return tuple(self._advance(sequence) for sequence in list(self._running.values()))

    def _cached(self, tokens: tuple[int, ...]) -> int:
        prefixes = [tokens[:end] for end in range(BLOCK, len(tokens), BLOCK)]
        known = sum(prefix in self._blocks for prefix in prefixes) * BLOCK if self._caching else 0
        self._blocks.update(prefixes)
        return known

    def _advance(self, sequence: _Sequence) -> EngineOutput:
        sequence.generated += 1
        ended = sequence.generated >= sequence.work.sampling.max_tokens
        if ended:
            del self._running[sequence.work.request_id]
        cached = sequence.cached if sequence.generated == 1 else 0
        delta = SequenceDelta((1,), finish=FinishReason.LENGTH if ended else None, cached_tokens=cached)
        return EngineOutput(sequence.work.request_id, delta)
