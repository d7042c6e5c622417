"""Measures the steps of a live engine, through nothing but the Engine protocol."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean, median

from engine.base import Engine
from engine.simulated.cost.bench import Bench, Clock, Run
from engine.simulated.cost.measured import MeasuredStep, fit
from engine.simulated.cost.profile_pair import DECODE, PREFILL, fit_link, measure_pull, measure_sharing
from engine.simulated.cost.table import Facts, Table
from proto.worker import WorkerInfo

#: One measurement, repeatable.
Point = Callable[[], Awaitable[MeasuredStep | None]]

#: Loopback, for an engine whose links nobody measured.
_LINKS = {"tcp": (1.2e9, 200e-6)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `max_num_batched_tokens` is the engine's token budget of a step: longer chunks are left out.

    So are points that would hold more than `most_tokens` tokens of KV at once: on a CPU filling the cache takes
    longer than measuring. With a second engine, `pulls` are lengths of prompts that are handed off, and `rounds` is
    how often steps are compared with and without a busy neighbour.
    """

    max_num_batched_tokens: int = 2048
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    contexts: tuple[int, ...] = (32, 512, 2048)
    lengths: tuple[int, ...] = (8, 32, 128, 256, 512, 1024, 1536, 2000)
    cached: tuple[int, ...] = (512, 1024)
    beside: tuple[tuple[int, int], ...] = ((1, 128), (4, 256), (8, 512))
    repeats: int = 3
    decode_steps: int = 12
    pulls: tuple[int, ...] = (64, 256, 1024)
    rounds: int = 6
    most_tokens: int = 8192
    timeout_s: float = 300.0


async def profile(
    engine: Engine,
    plan: Plan | None = None,
    *,
    neighbour: Engine | None = None,
    links: Mapping[str, tuple[float, float]] | None = None,
    clock: Clock = time.monotonic,
    progress: Callable[[MeasuredStep], None] | None = None,
    planned: Callable[[int], None] | None = None,
) -> Table:
    """Starts the engine, measures it while nothing else uses it, and stops it.

    `neighbour` is a second engine of the same kind: with it the link between two engines, and how much they slow each
    other down, are measured too. `links` maps a transport to bytes a second and latency and says what was not
    measured. The result is ready for `write_table`. `planned` hears how many steps there will be at most, then
    `progress` each of them.
    """
    plan = plan or Plan()
    steps: list[MeasuredStep] = []
    links, sharing = dict(links or _LINKS), dict[str, float]()
    async with AsyncExitStack() as stack:
        info, bench = await stack.enter_async_context(_live(engine, clock, plan))
        beside = await stack.enter_async_context(_live(neighbour, clock, plan)) if neighbour else None
        prompts: Iterator[Point] = _prompt_points(bench, info, plan)
        if beside:
            prompts = (partial(_rested, beside[1], plan.decode_steps // 2, point) for point in prompts)
        points = [*_decode_points(bench, info, plan), *prompts]
        if planned:
            planned(len(points) * plan.repeats)
        async for step in _measure(bench, plan, points):
            steps.append(step)
            if progress:
                progress(step)
        if neighbour and beside:
            transport = await _warmed(neighbour, info)
            links[transport] = await _link(bench, beside[1], info, plan)
            sharing = await _sharing(bench, beside[1], info, plan)
    facts, device = _facts(info, plan), info.topology.device
    return fit(steps, facts, tp=info.tp, device=device, links=links, sharing=sharing)


@asynccontextmanager
async def _live(engine: Engine, clock: Clock, plan: Plan) -> AsyncIterator[tuple[WorkerInfo, Bench]]:
    """An engine with its frames being read; stopped at the end."""
    try:
        info = await engine.start()
        bench = Bench(engine, info, clock, plan.timeout_s)
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(bench.read())
            await _first_token(bench, bench.prompt(min(plan.lengths)))  # whatever the first request alone pays for
            yield info, bench
            reader.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None  # the first is why the others ended
    finally:
        await engine.stop()


async def _warmed(reader: Engine, writer: WorkerInfo) -> str:
    """The transport that two engines have in common, after their hand-shake."""
    result = await reader.warm(writer)
    if not result.ok:
        raise ValueError(f"two engines of this kind cannot exchange KV: {result.detail}")
    return result.transport


async def _link(writer: Bench, reader: Bench, info: WorkerInfo, plan: Plan) -> tuple[float, float]:
    longest = min(info.max_model_len, _room(info, plan)) - 2 * plan.decode_steps
    # One token short of whole blocks: the reader's next one must not need a block that the writer does not hold.
    lengths = [length - (length % info.block_size_tokens == 0) for length in plan.pulls if length <= longest]
    await measure_pull(writer, reader, lengths[0])  # the first pull of a pair pays for its connection
    return fit_link([await measure_pull(writer, reader, length) for _ in range(plan.repeats) for length in lengths])


async def _sharing(bench: Bench, neighbour: Bench, info: WorkerInfo, plan: Plan) -> dict[str, float]:
    """At a short and at the longest prompt of the plan that fits one step, and at a small and at the largest batch."""
    longest = min(info.max_model_len // 2, plan.max_num_batched_tokens, _room(info, plan))
    lengths = [length for length in plan.lengths if length <= longest]
    batches = [batch for batch in plan.batches if batch < info.max_num_seqs]

    async def decode(batch: int) -> float:
        return (await _decode_step(bench, batch, min(plan.contexts), plan.decode_steps)).s

    async def prefill(length: int) -> float:
        return (await _alone(bench, length)).s

    steps = {
        DECODE: [partial(decode, batch) for batch in sorted({batches[0], batches[-1]})],
        PREFILL: [partial(prefill, length) for length in sorted({lengths[len(lengths) // 2], lengths[-1]})],
    }
    return await measure_sharing(steps, neighbour, plan.rounds, lengths[-1])


async def _measure(bench: Bench, plan: Plan, points: Sequence[Point]) -> AsyncIterator[MeasuredStep]:
    """Goes round all points `repeats` times, so that a spell of noise spoils one sample of many points."""
    for _ in range(plan.repeats):
        for point in points:
            if step := await point():
                yield step


def _decode_points(bench: Bench, info: WorkerInfo, plan: Plan) -> Iterator[Point]:
    for batch in plan.batches:
        for context in plan.contexts:
            held = context + 2 * plan.decode_steps
            if batch <= info.max_num_seqs and batch * held <= _room(info, plan) and held < info.max_model_len:
                yield partial(_decode_step, bench, batch, context, plan.decode_steps)


def _prompt_points(bench: Bench, info: WorkerInfo, plan: Plan) -> Iterator[Point]:
    longest = min(info.max_model_len - 1, plan.max_num_batched_tokens, _room(info, plan))
    lengths = [length for length in plan.lengths if length <= longest]
    for length in lengths:
        yield partial(_alone, bench, length)
    for before in plan.cached:
        prefix = bench.prompt(before)
        for length in lengths[1::2]:
            if before + length < min(info.max_model_len, _room(info, plan)):
                yield partial(_on_cached, bench, prefix, length)
    for batch, length in plan.beside:
        if batch < info.max_num_seqs and batch + length <= longest:
            yield partial(_mixed_step, bench, batch, length)


def _room(info: WorkerInfo, plan: Plan) -> int:
    return min(info.blocks_total * info.block_size_tokens, plan.most_tokens)


async def _decode_step(bench: Bench, batch: int, context: int, steps: int) -> MeasuredStep:
    await bench.settle()
    async with bench.running([bench.prompt(context) for _ in range(batch)]) as runs:
        first = runs[0]
        # The frame after the last first token may still have carried a prompt.
        begin = len(first.times) + 1
        await bench.until(lambda: len(first.times) >= begin + steps)
        seconds = median(after - before for before, after in pairwise(first.times[begin - 1 :]))
        return MeasuredStep(seconds, batch, _mean_context(runs) - steps // 2)


async def _first_token(bench: Bench, prompt: tuple[int, ...]) -> MeasuredStep:
    await bench.settle()
    started = bench.clock()
    async with bench.running([prompt], max_tokens=1) as (run,):
        return MeasuredStep(run.times[0] - started, new=len(prompt) - run.cached, before=run.cached)


async def _alone(bench: Bench, length: int) -> MeasuredStep:
    return await _first_token(bench, bench.prompt(length))


async def _rested(neighbour: Bench, steps: int, point: Point) -> MeasuredStep | None:
    """The point, after some decode steps of the neighbour.

    In a pair the engine of prompts rests while the other decodes, whose weights push its own out of the caches that
    they share: its next prompt finds nothing warm. Prompts one after the other would look faster than they are.
    """
    async with neighbour.running([neighbour.prompt(32)]) as (run,):
        await neighbour.until(lambda: len(run.times) > steps)
    await neighbour.settle()
    return await point()


async def _on_cached(bench: Bench, prefix: tuple[int, ...], length: int) -> MeasuredStep | None:
    """None when the engine keeps no prefixes."""
    await _first_token(bench, prefix)
    step = await _first_token(bench, prefix + bench.prompt(length))
    return step if step.before else None


async def _mixed_step(bench: Bench, batch: int, length: int) -> MeasuredStep:
    await bench.settle()
    async with bench.running([bench.prompt(32) for _ in range(batch)]) as decodes:
        ready = len(decodes[0].times) + 2
        await bench.until(lambda: len(decodes[0].times) >= ready)
        async with bench.running([bench.prompt(length)], max_tokens=1) as (prompt,):
            ended = prompt.times[0]
            began = max(moment for moment in decodes[0].times if moment < ended)
            return MeasuredStep(ended - began, batch, _mean_context(decodes), length)


def _mean_context(runs: list[Run]) -> int:
    return round(mean(run.context for run in runs))


def _facts(info: WorkerInfo, plan: Plan) -> Facts:
    return Facts(
        model=info.model,
        dtype=info.dtype,
        pp=info.pp,
        block_size_tokens=info.block_size_tokens,
        blocks_total=info.blocks_total,
        kv_bytes_per_token=info.kv_bytes_per_token,
        max_model_len=info.max_model_len,
        max_num_seqs=info.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        vocab_size=info.vocab_size,
        eos_token_ids=info.eos_token_ids,
    )
