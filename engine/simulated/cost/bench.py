"""Requests to a live engine, with the time of every frame that brings tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from engine.base import Engine, EngineFrame
from proto.fault import FaultError
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import Work
from proto.worker import WorkerInfo

Clock = Callable[[], float]
Tokens = tuple[int, ...]
_ENDLESS = 1 << 20
_SETTLE_POLL_S = 0.005


@dataclass(slots=True)
class Run:
    """One request: when its tokens came, one entry a frame."""

    prompt_tokens: int
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    last: int = 0
    cached: int = 0
    ended: bool = False
    ticket: Ticket | None = None

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.tokens


class Bench:
    """The only user of an engine. Every wait has the same deadline."""

    def __init__(self, engine: Engine, info: WorkerInfo, clock: Clock, timeout_s: float) -> None:
        self.clock = clock
        self._engine = engine
        self._timeout_s = timeout_s
        self._news = asyncio.Condition()
        self._runs: dict[str, Run] = {}
        self._draw = Random(1)
        self._count = 0
        self._cut = False  # whether a request was aborted since the engine was last known to be idle
        self._room = info.max_model_len
        stops = set(info.eos_token_ids)
        self._alphabet = [token for token in range(min(info.vocab_size, 4096)) if token not in stops]

    def prompt(self, length: int) -> Tokens:
        """Random, so that nothing of it is cached."""
        return tuple(self._draw.choices(self._alphabet, k=length))

    async def read(self) -> None:
        """Runs beside the measurements until cancelled."""
        async for frame in self._engine.frames():
            self._take(frame, self.clock())
            async with self._news:
                self._news.notify_all()

    def _take(self, frame: EngineFrame, now_s: float) -> None:
        for output in frame:
            run = self._runs.get(output.request_id)
            if run is None:
                continue
            if output.delta.fault is not None:
                raise FaultError(output.delta.fault)
            if output.delta.tokens:
                run.cached = max(run.cached, output.delta.cached_tokens)
                run.times.append(now_s)
                run.tokens += len(output.delta.tokens)
                run.last = output.delta.tokens[-1]
            run.ticket = output.ticket or run.ticket
            run.ended |= output.delta.ended

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(self._timeout_s), self._news:
            await self._news.wait_for(condition)

    @asynccontextmanager
    async def running(
        self, prompts: Sequence[Tokens], max_tokens: int = _ENDLESS, *, hold: bool = False, pull: Ticket | None = None
    ) -> AsyncIterator[list[Run]]:
        """Requests of which each has its first token; gone from the engine afterwards. `hold`, `pull`: as submitted."""
        runs: dict[str, Run] = {}
        try:
            for prompt in prompts:
                self._count += 1
                name = f"profile-{self._count}"
                self._runs[name] = runs[name] = Run(len(prompt))
                limit = min(max_tokens, self._room - len(prompt))
                sampling = Sampling(max_tokens=limit, min_tokens=limit, temperature=0.0, ignore_eos=True)
                self._engine.submit(Work(name, prompt, sampling), hold=hold, pull=pull)
            await self.until(lambda: all(run.tokens for run in runs.values()))
            yield list(runs.values())
        finally:
            for name, run in runs.items():
                self._cut |= not run.ended
                await self._engine.abort(name)
                self._runs.pop(name, None)

    async def held(self, prompt: Tokens) -> tuple[int, Ticket]:
        """A prefill leg: its one token, and the ticket of its KV."""
        async with self.running([prompt], max_tokens=1, hold=True) as (run,):
            await self.until(lambda: run.ticket is not None)
            assert run.ticket is not None
            return run.last, run.ticket

    async def settle(self) -> None:
        """Waits until nothing runs, so that measurements do not see one another.

        An abort does not end the step under way, and what it aborted counts no more: only a request after it tells.
        """
        if self._cut:
            async with self.running([self.prompt(1)], max_tokens=1) as (last,):
                await self.until(lambda: last.ended)
            self._cut = False
        async with asyncio.timeout(self._timeout_s):
            # Engines announce no idleness: asking is the only way.
            while (stats := self._engine.stats()).running or stats.waiting:  # noqa: ASYNC110
                await asyncio.sleep(_SETTLE_POLL_S)
