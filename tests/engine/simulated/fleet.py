"""Small helpers around simulated engines in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from engine.base import EngineOutput, WorkerIdentity
from engine.config import Backend, EngineConfig
from engine.simulated import SimulatedEngine
from engine.simulated.faults import Script
from proto.fault import Fault
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import FinishReason, Work
from proto.worker import Role, WorkerInfo
from tests.waiting import HANG_S


class Running:
    """A started engine whose frames are sorted by request."""

    def __init__(self, engine: SimulatedEngine, info: WorkerInfo) -> None:
        self.engine = engine
        self.info = info
        self.outputs: dict[str, list[EngineOutput]] = {}
        self.frames: list[tuple[EngineOutput, ...]] = []
        self.error: Exception | None = None
        self._news = asyncio.Event()
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for frame in self.engine.frames():
                self.frames.append(frame)
                for output in frame:
                    self.outputs.setdefault(output.request_id, []).append(output)
                self._news.set()
        except Exception as error:
            self.error = error
            self._news.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():
                self._news.clear()
                try:
                    async with asyncio.timeout(0.01):
                        await self._news.wait()
                except TimeoutError:
                    pass

    def submit(self, name: str, prompt: tuple[int, ...], sampling: Sampling, **more: Any) -> None:
        keys = {key: more.pop(key) for key in ("priority", "cache_salt") if key in more}
        self.engine.submit(Work(name, prompt, sampling, **keys), **more)

    async def end_of(self, name: str) -> list[EngineOutput]:
        await self.until(lambda: self.error or self.ended(name))
        if self.error is not None and not self.ended(name):
            raise self.error
        return self.outputs[name]

    def ended(self, name: str) -> bool:
        return bool(self.outputs.get(name)) and self.outputs[name][-1].delta.ended

    async def run(self, name: str, prompt: tuple[int, ...], sampling: Sampling, **more: Any) -> tuple[int, ...]:
        self.submit(name, prompt, sampling, **more)
        return tokens(await self.end_of(name))

    async def prefill(self, name: str, prompt: tuple[int, ...], **sampling: Any) -> tuple[int, Ticket]:
        """A prefill leg: its one token and the ticket."""
        self.submit(name, prompt, Sampling(max_tokens=1, ignore_eos=True, **sampling), hold=True)
        last = (await self.end_of(name))[-1]
        assert last.delta.fault is None, last.delta.fault
        assert last.ticket is not None
        return last.delta.tokens[0], last.ticket

    def finish_of(self, name: str) -> FinishReason | None:
        return self.outputs[name][-1].delta.finish

    def fault_of(self, name: str) -> Fault | None:
        return self.outputs[name][-1].delta.fault

    @property
    def used(self) -> int:
        return self.engine.stats().blocks_used


def tokens(outputs: list[EngineOutput]) -> tuple[int, ...]:
    return tuple(token for output in outputs for token in output.delta.tokens)


def text(*words: str) -> tuple[int, ...]:
    return tuple(" ".join(words).encode())


@asynccontextmanager
async def engine(
    name: str = "w", role: Role = Role.BOTH, script: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[Running]:
    """A started engine; at the end it must hold nothing."""
    settings = {"profile": "instant", "block_size_tokens": 16, **config}
    built = SimulatedEngine(
        EngineConfig(backend=Backend.SIMULATED, **settings), WorkerIdentity(name, f"epoch-{name}", role)
    )
    if script is not None:
        built.injector.use(Script.model_validate(script))
    running = Running(built, await built.start())
    try:
        yield running
    finally:
        await built.stop()
        await running.reader


@asynccontextmanager
async def pair(
    script: dict[str, Any] | None = None, writer_script: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[tuple[Running, Running]]:
    """A prefill engine and a decode engine, shaken hands."""
    async with (
        engine("p", Role.PREFILL, writer_script, **config) as writer,
        engine("d", Role.DECODE, script, **config) as reader,
    ):
        assert (await reader.engine.warm(writer.info)).ok
        yield writer, reader
