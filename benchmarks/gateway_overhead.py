"""What the gateway adds to an engine: TTFT, time per token, and its own CPU.

One engine lives in this process. It is asked directly (its dispatcher, no sockets) and through the whole path (HTTP,
gateway process, gRPC, the same dispatcher), in alternating rounds with the same prompts. A bare ASGI application that
streams as many chunks of the same size is the reference for CPU. Ratios within one run are what to read.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import httpx
import psutil

from benchmarks.ending import sigterm_as_ctrl_c
from benchmarks.processes import cpu_s, served
from engine.base import WorkerIdentity
from engine.config import Backend, EngineConfig
from engine.dispatcher import Dispatcher, News
from proto.sampling import Sampling
from proto.work import Work
from proto.worker import Role
from tandem.worker.backend import make_engine
from tandem.worker.config import WorkerConfig
from tandem.worker.worker import serving


@dataclass(slots=True)
class Timing:
    """One answer: when it was asked for, and when each batch of tokens came."""

    asked_s: float
    batches: list[tuple[float, int]] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        return self.batches[0][0] - self.asked_s

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.batches)

    @property
    def tpot_s(self) -> float:
        return (self.batches[-1][0] - self.batches[0][0]) / (self.tokens - 1)


@dataclass(frozen=True, slots=True)
class Plan:
    requests: int
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    rounds: int
    vocabulary: int = 250  # low ids are ordinary tokens of every vocabulary here

    def prompts(self, round_: int, salt: int) -> list[list[int]]:
        """Fresh prompts every time, so that no prefix cache helps one side."""
        rng = random.Random(f"{round_} {salt}")
        return [[rng.randrange(self.vocabulary) for _ in range(self.prompt_tokens)] for _ in range(self.requests)]


class Direct:
    """An owner of engine requests that only notes the time."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._live: dict[int, tuple[Timing, asyncio.Future[Timing]]] = {}
        self._next = 0

    def deliver(self, news: News) -> None:
        now_s = time.perf_counter()
        for key, output in news:
            timing, done = self._live[key]
            assert output.delta.fault is None, output.delta.fault
            if output.delta.tokens:
                timing.batches.append((now_s, len(output.delta.tokens)))
            if output.delta.ended:
                del self._live[key]
                done.set_result(timing)

    async def ask(self, tokens: list[int], output_tokens: int) -> Timing:
        self._next += 1
        timing, done = Timing(time.perf_counter()), asyncio.get_running_loop().create_future()
        self._live[self._next] = timing, done
        sampling = Sampling(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
        self._dispatcher.submit(Work(f"direct-{self._next}", tuple(tokens), sampling), self, self._next)
        answered: Timing = await done
        return answered


Ask = Callable[[], Awaitable[Timing]]


async def through(client: httpx.AsyncClient, tokens: list[int], output_tokens: int) -> Timing:
    body = {"prompt": tokens, "max_tokens": output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    timing, usage = Timing(time.perf_counter()), 0
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if '"usage":{' in line:
                usage = json.loads(line[6:])["usage"]["completion_tokens"]
            else:
                timing.batches.append((time.perf_counter(), 1))
    assert usage == output_tokens, (usage, output_tokens)
    first, last = timing.batches[0][0], timing.batches[-1][0]
    # a chunk may hold several tokens, or none of a character yet: the count is the usage's
    timing.batches = [(first, 1), (last, usage - 1)]
    return timing


async def _round(concurrency: int, asks: Sequence[Ask]) -> list[Timing]:
    gate = asyncio.Semaphore(concurrency)

    async def one(ask: Ask) -> Timing:
        async with gate:
            return await ask()

    return list(await asyncio.gather(*(one(ask) for ask in asks)))


@dataclass(slots=True)
class Figures:
    """Everything measured in one run."""

    direct: list[Timing] = field(default_factory=list)
    through: list[Timing] = field(default_factory=list)
    gateway_cpu_s: float = 0.0
    bare_cpu_s: float = 0.0


async def measure(plan: Plan, config: EngineConfig) -> Figures:
    identity = WorkerIdentity("bench-0", "bench", Role.BOTH)
    engine = make_engine(config, identity)
    info = await engine.start()
    figures = Figures()
    try:
        async with serving(WorkerConfig(worker_id="bench-0", engine=config), engine, identity, info) as (
            worker,
            address,
        ):
            argv = ("gateway", "--port", "{port}", "--worker", address)
            async with served("tandem", *argv, path="/readyz") as (url, process):
                await _rounds(plan, Direct(worker.dispatcher), url, process, figures)
    finally:
        await engine.stop()
    gap_s = statistics.median(timing.tpot_s for timing in figures.through)
    figures.bare_cpu_s = await bare(plan, gap_s)
    return figures


async def _rounds(plan: Plan, direct: Direct, url: str, process: psutil.Process, figures: Figures) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        for round_ in range(plan.rounds + 1):  # round 0 warms both
            asks = [partial(direct.ask, tokens, plan.output_tokens) for tokens in plan.prompts(round_, salt=0)]
            alone = await _round(plan.concurrency, asks)
            before_s = cpu_s(process)
            asks = [partial(through, client, tokens, plan.output_tokens) for tokens in plan.prompts(round_, salt=5_000)]
            served_ = await _round(plan.concurrency, asks)
            if round_:
                figures.direct += alone
                figures.through += served_
                figures.gateway_cpu_s += cpu_s(process) - before_s


async def bare(plan: Plan, gap_s: float) -> float:
    """CPU seconds of the bare application for as many streams and chunks, at the same pace."""
    limits = httpx.Limits(max_connections=None)
    async with (
        served("benchmarks.bare_sse", "{port}", path="/") as (url, process),
        httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client,
    ):

        async def ask() -> Timing:
            async with client.stream("GET", f"/?chunks={plan.output_tokens}&gap_s={gap_s}") as reply:
                async for _ in reply.aiter_raw():
                    pass
            return Timing(0.0)

        await _round(plan.concurrency, [ask] * plan.concurrency)
        before_s = cpu_s(process)
        for _ in range(plan.rounds):
            await _round(plan.concurrency, [ask] * plan.requests)
        return cpu_s(process) - before_s


def summary(plan: Plan, figures: Figures) -> dict[str, float]:
    def median(timings: Sequence[Timing], key: str) -> float:
        values: list[float] = [getattr(timing, key) for timing in timings]
        return statistics.median(values) * 1000

    def p90(timings: Sequence[Timing], key: str) -> float:
        values: list[float] = [getattr(timing, key) for timing in timings]
        return statistics.quantiles(values, n=10)[-1] * 1000

    requests = len(figures.through)
    tokens = requests * plan.output_tokens
    return {
        "requests": requests,
        "tokens": tokens,
        "ttft_direct_p50_ms": median(figures.direct, "ttft_s"),
        "ttft_gateway_p50_ms": median(figures.through, "ttft_s"),
        "ttft_direct_p90_ms": p90(figures.direct, "ttft_s"),
        "ttft_gateway_p90_ms": p90(figures.through, "ttft_s"),
        "ttft_ratio_p50": median(figures.through, "ttft_s") / median(figures.direct, "ttft_s"),
        "tpot_direct_p50_ms": median(figures.direct, "tpot_s"),
        "tpot_gateway_p50_ms": median(figures.through, "tpot_s"),
        "tpot_ratio_p50": median(figures.through, "tpot_s") / median(figures.direct, "tpot_s"),
        "gateway_cpu_s_per_1000_requests": figures.gateway_cpu_s / requests * 1000,
        "gateway_cpu_s_per_million_tokens": figures.gateway_cpu_s / tokens * 1e6,
        "bare_asgi_cpu_s_per_million_tokens": figures.bare_cpu_s / tokens * 1e6,
        "cpu_ratio_to_bare_asgi": figures.gateway_cpu_s / figures.bare_cpu_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=[backend.value for backend in Backend], default=Backend.SIMULATED.value)
    parser.add_argument("--model", default="", help="model directory of the real engine")
    parser.add_argument("--requests", type=int, default=64, help="a round and side")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    config = EngineConfig(backend=args.engine, model=args.model, max_num_seqs=max(64, args.concurrency))
    plan = Plan(args.requests, args.concurrency, args.prompt_tokens, args.output_tokens, args.rounds)
    figures = summary(plan, asyncio.run(measure(plan, config)))
    if args.json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:,.2f}")


if __name__ == "__main__":
    sigterm_as_ctrl_c()
    main()
