"""What a second engine of the same kind changes: how KV moves between two, and how they slow each other down.

Both are measured and nothing is assumed: a pull is a real one, timed from the reader's submit to its first token less
an ordinary decode step, so everything that a hand-off costs an idle reader is in it (hand-over to the engine's process,
its polling, the notification). Engines on one machine share cores, caches and the way to memory: the same step is
measured in turns with the neighbour idle and with the neighbour at work on either phase.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import geometric_mean, median

from engine.simulated.cost.bench import Bench
from engine.simulated.cost.measured import non_negative

#: Steps of one kind by the name under which a table keeps them.
DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True, slots=True)
class MeasuredPull:
    """Seconds by which a pull of so many bytes delayed the reader's first token."""

    size_bytes: int
    s: float


async def measure_pull(writer: Bench, reader: Bench, length: int, steps: int = 6) -> MeasuredPull:
    """Prefills on one engine and decodes on the other, with nothing else on either."""
    await writer.settle()
    await reader.settle()
    prompt = writer.prompt(length)
    token, ticket = await writer.held(prompt)
    started = reader.clock()
    async with reader.running([(*prompt, token)], pull=ticket) as (run,):
        await reader.until(lambda: len(run.times) > steps)
        step_s = median(after - before for before, after in pairwise(run.times))
        return MeasuredPull(ticket.kv_bytes, run.times[0] - started - step_s)


def fit_link(pulls: Sequence[MeasuredPull]) -> tuple[float, float]:
    """(bytes a second, latency): a line over sizes through the medians of each."""
    sizes = sorted({pull.size_bytes for pull in pulls})
    medians = [max(1e-6, median(pull.s for pull in pulls if pull.size_bytes == size)) for size in sizes]
    latency_s, byte_s = non_negative([[1.0, float(size)] for size in sizes], medians)
    return 1.0 / max(byte_s, 1e-12), latency_s


@asynccontextmanager
async def _at_work(bench: Bench, phase: str, length: int) -> AsyncIterator[None]:
    """Keeps an engine busy with one phase and nothing else."""

    async def prefill() -> None:
        while True:
            async with bench.running([bench.prompt(length)], max_tokens=1):
                pass

    async def decode() -> None:
        async with bench.running([bench.prompt(length)]):
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()
    work = asyncio.create_task(decode() if phase == DECODE else prefill())
    try:
        if phase == DECODE:
            await begun.wait()
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await bench.settle()


async def measure_sharing(
    measure: Mapping[str, Sequence[Callable[[], Awaitable[float]]]], neighbour: Bench, rounds: int, length: int
) -> dict[str, float]:
    """By kind of step: its time with the neighbour at work over its time alone, never below 1.

    The geometric mean over several steps of the kind and over both phases of the neighbour, each of them a ratio of
    medians: a colocated neighbour decodes and computes prompts, and small steps wait for memory more than large ones.
    """
    phases = (DECODE, PREFILL)
    steps = [(kind, step) for kind, several in measure.items() for step in several]
    alone: list[list[float]] = [[] for _ in steps]
    beside: dict[tuple[int, str], list[float]] = {
        (number, phase): [] for number in range(len(steps)) for phase in phases
    }
    for _ in range(rounds):
        for number, (_, step) in enumerate(steps):
            alone[number].append(await step())
            for phase in phases:
                async with _at_work(neighbour, phase, length):
                    beside[number, phase].append(await step())
    ratios: dict[str, list[float]] = {kind: [] for kind in measure}
    for (number, _), times in beside.items():
        ratios[steps[number][0]].append(median(times) / median(alone[number]))
    return {kind: max(1.0, geometric_mean(found)) for kind, found in ratios.items()}
