"""Runs a slice of a schedule on one event loop."""

import asyncio
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from loadgen.client.exchange import Client
from loadgen.client.prompts import PromptWriter
from loadgen.client.target import Target, request_bytes
from loadgen.client.wire import Pool
from loadgen.result import Result
from loadgen.schedule import Planned

#: Requests are written this long before they are due, so that writing never delays sending.
_AHEAD_S = 0.5

#: Sends further apart than this are timed exactly, at half a millisecond of CPU each.
_TURNING_GAP_S = 0.01

Report = Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class Job:
    """`concurrency` above 0 makes it a closed loop. `origin_s` is on the monotonic clock, which all processes share."""

    target: Target
    writer: PromptWriter
    requests: tuple[Planned, ...]
    origin_s: float
    concurrency: int = 0
    timeout_s: float = 600.0


@dataclass(slots=True)
class Progress:
    """What the display shows while the run goes on."""

    sent: int = 0
    ended: int = 0


class Runner:
    """Sends a job's requests. `stop` ends it early: open requests are cut and become cancelled results."""

    def __init__(self, job: Job, report: Report, progress: Progress | None = None) -> None:
        self._job = job
        self._report = report
        self.progress = progress or Progress()
        self._client = Client(Pool(job.target.endpoint), job.origin_s, job.timeout_s)
        self._stopping = asyncio.Event()
        self._ended: dict[int, asyncio.Event] = {p.after: asyncio.Event() for p in job.requests if p.after is not None}

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        # a collection of a heap full of open streams takes 100 ms and more, which would be read as latency of the
        # target; the client makes next to no cycles, so nothing is lost by waiting until the end
        gc.collect()
        gc.disable()
        work = asyncio.create_task(self._closed() if self._job.concurrency else self._open())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            stop.cancel()
            gc.enable()
            self._client.pool.close()

    # open loop

    async def _open(self) -> None:
        """Every request at its own time, whatever became of the others."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Queue[tuple[Planned, bytes] | None] = asyncio.Queue()
        writing = loop.create_task(self._write_ahead(ready))
        tasks: set[asyncio.Task[None]] = set()
        exactly = _mean_gap_s(self._job.requests) > _TURNING_GAP_S
        try:
            while (item := await ready.get()) is not None:
                planned, request = item
                at_s = self._job.origin_s + planned.at_s
                if planned.after is None:
                    await _sleep_until(at_s, exactly=exactly)
                    body = self._one(planned, request, at_s)
                else:
                    body = self._turn(planned, request, self._ended[planned.after])
                task = loop.create_task(body)
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            while tasks:
                await asyncio.wait(tasks)
            writing.result()
        finally:
            await _cancel([writing, *tasks])

    async def _write_ahead(self, ready: "asyncio.Queue[tuple[Planned, bytes] | None]") -> None:
        try:
            for planned in self._job.requests:
                early = self._job.origin_s + planned.at_s - _AHEAD_S - monotonic()
                await asyncio.sleep(max(0.0, early))
                ready.put_nowait((planned, self._write(planned)))
        finally:
            ready.put_nowait(None)

    async def _turn(self, planned: Planned, request: bytes, after: asyncio.Event) -> None:
        """A paced turn: think time after the answer before it."""
        await after.wait()
        await asyncio.sleep(planned.demand.think_s)
        await self._one(planned, request, monotonic())

    # closed loop

    async def _closed(self) -> None:
        queue = iter(self._job.requests)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._job.concurrency):
                group.create_task(self._next(queue))

    async def _next(self, queue: Iterator[Planned]) -> None:
        for planned in queue:
            if self._stopping.is_set():
                return
            if planned.after is not None:
                await self._ended[planned.after].wait()
                await asyncio.sleep(planned.demand.think_s)
            await self._one(planned, self._write(planned), monotonic())

    # both

    def _write(self, planned: Planned) -> bytes:
        job = self._job
        return request_bytes(job.target, job.writer, planned.demand, planned.index)

    async def _one(self, planned: Planned, request: bytes, intended_s: float) -> None:
        self.progress.sent += 1
        result = await self._client.send(planned, request, intended_s)
        self.progress.ended += 1
        if planned.index in self._ended:
            self._ended[planned.index].set()
        self._report(result)


def _mean_gap_s(requests: Sequence[Planned]) -> float:
    return (requests[-1].at_s - requests[0].at_s) / len(requests) if requests else 0.0


async def _sleep_until(at_s: float, *, exactly: bool) -> None:
    """Never early. Loops round timers to about a millisecond: `exactly` turns the loop for the rest of it."""
    while (wait := at_s - monotonic()) > 0:
        whole_ms = math.floor(wait * 1e3) if exactly else math.ceil(wait * 1e3)
        await asyncio.sleep(whole_ms / 1e3)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cut requests still report: their tasks turn a cancellation into a result."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def slices(requests: Sequence[Planned], parts: int) -> list[tuple[Planned, ...]]:
    """Deals requests out; a paced session stays whole, because its turns wait for each other."""
    homes: dict[int, int] = {}
    dealt: list[list[Planned]] = [[] for _ in range(parts)]
    for planned in requests:
        home = homes[planned.after] if planned.after is not None else planned.index % parts
        homes[planned.index] = home
        dealt[home].append(planned)
    return [tuple(part) for part in dealt if part]
