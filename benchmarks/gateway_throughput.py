"""What one gateway core carries, with an engine that costs nothing: requests, streamed tokens, open streams.

Workers, gateway, load client and the reference run in processes of their own. Figures "per core" are counts by the
gateway's CPU time, so that a busy machine does not spoil them. The reference is a bare ASGI application that streams
ready-made chunks (bare_sse.py); it and, with --against, the gateway of another checkout take turns with the gateway
in every round. Ratios within one run are what to read.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.ending import sigterm_as_ctrl_c
from benchmarks.processes import cpu_s, running, served
from benchmarks.tap import tap
from benchmarks.word_model import word_model
from engine.simulated.cost.table import Facts, GridTimes, Layout, LengthTimes, Table, TokenTimes, write_table
from transfer.ports import free_ports

#: Above this share of a core the load client may be what limits a wall-clock figure.
CLIENT_BOUND = 0.85
PROMPT = "Tell me, in a few words, what a gateway between clients and engines is good for. "


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    requests: int
    connections: int
    streams: int
    output_tokens: int
    step_s: float
    open_streams: tuple[int, ...]
    model: str
    against: Path | None


@dataclass(frozen=True, slots=True)
class Arm:
    """One server and the request that makes it answer in `tokens` chunks, one every `gap_s`."""

    name: str
    port: int
    process: psutil.Process
    gateway: bool

    def spec(self, tokens: int, gap_s: float) -> dict[str, Any]:
        if not self.gateway:
            head = f"GET /?chunks={tokens}&gap_s={gap_s} HTTP/1.1\r\nhost: bench\r\n\r\n"
            return {"host": "127.0.0.1", "port": self.port, "request": head}
        body = json.dumps(
            {
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT * 2}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n\r\n"
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "request": head + body,
            "proof": f'"completion_tokens":{tokens},',
        }


@dataclass(slots=True)
class Tally:
    """What one arm did over all rounds of one measurement."""

    requests: int = 0
    tokens: int = 0
    events: int = 0
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    wall_s: float = 0.0
    first_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    engine_gaps_s: list[float] = field(default_factory=list)

    @property
    def client_bound(self) -> bool:
        return self.client_cpu_s > CLIENT_BOUND * self.wall_s


Row = tuple[str, dict[str, float]]


def steps_of(step_s: float, directory: Path) -> str:
    """A profile whose every step takes `step_s`, with room for thousands of streams."""
    tokens, flat = (1, 1 << 20), (step_s, step_s)
    times, none = TokenTimes(tokens, flat, (0.0, 0.0), (0.0, 0.0)), GridTimes(tokens, tokens, ((0.0, 0.0),) * 2)
    lengths = LengthTimes(tokens, (0.0, 0.0))
    layout = Layout(1, 1, times, times, none, lengths, lengths, none, none)
    facts = Facts("fixed", "bfloat16", 1, 16, 200_000, 23_040, 8192, 8192, 65_536, 257, (256,))
    table = Table("simulated", "fixed", {"name": "benchmark"}, (layout,), {"tcp": (1.2e9, 1e-6)}, facts=facts)
    path = directory / f"step-{step_s}.json"
    write_table(table, path)
    return f"file:{path}"


@contextlib.asynccontextmanager
async def fleet(plan: Plan, profile: str, roles: Sequence[str]) -> AsyncIterator[tuple[list[Arm], list[str]]]:
    """Workers of these roles under a gateway (or two), and the reference. Yields the arms and the workers' addresses."""
    async with contextlib.AsyncExitStack() as stack:
        addresses = []
        for role in roles:
            port = free_ports("127.0.0.1", 1)[0]
            argv = ["worker", "--role", role, "--engine", "simulated", "--profile", profile, "--port", str(port)]
            argv += ["--set", "engine.max_num_seqs=8192", "--set", "engine.max_num_batched_tokens=65536"]
            argv += ["--set", "engine.kv_blocks=200000", "--model", plan.model]
            await stack.enter_async_context(running("tandem", *argv))
            addresses.append(f"127.0.0.1:{port}")
        known = [flag for address in addresses for flag in ("--worker", address)]
        known += ["--set", "gateway.admission.max_queued=100000"]
        argv = ["gateway", "--port", "{port}", *known]
        arms = [await _arm(stack, "gateway", "tandem", *argv, path="/readyz")]
        if plan.against:
            arms.append(await _arm(stack, "against", "tandem", *argv, path="/readyz", tree=plan.against))
        arms.append(await _arm(stack, "bare", "benchmarks.bare_sse", "{port}", path="/"))
        yield arms, addresses


async def _arm(
    stack: contextlib.AsyncExitStack, name: str, module: str, *argv: str, path: str, tree: Path | None = None
) -> Arm:
    url, process = await stack.enter_async_context(served(module, *argv, path=path, tree=tree))
    return Arm(name, int(url.rpartition(":")[2]), process, gateway=module == "tandem")


@contextlib.asynccontextmanager
async def client(spec: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yields the client's figures; a client that holds its streams open does so until this is left."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.stream_client", stdin=pipe, stdout=pipe, limit=1 << 28
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        line = await process.stdout.readline()
        figures: dict[str, Any] = json.loads(line) if line else {"error": "the client died"}
        if figures["error"]:
            raise SystemExit(f"error: {figures['error']}")
        yield figures
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def rounds(
    arms: Sequence[Arm],
    count: int,
    *,
    requests: int,
    connections: int,
    tokens: int,
    gap_s: float = 0.0,
    address: str = "",
) -> dict[str, Tally]:
    """All arms in turn, `count` times; round 0 warms them. With `address`, that worker's own step gap beside it."""
    tallies = {arm.name: Tally() for arm in arms}
    for round_ in range(count + 1):
        for arm in arms if round_ % 2 else reversed(arms):
            # The reference is so quick that its CPU time needs more of the same to be told.
            asked = requests if arm.gateway or gap_s else requests * 10
            load = arm.spec(tokens, gap_s) | {"requests": asked if round_ else connections, "connections": connections}
            before_s = cpu_s(arm.process)
            async with contextlib.AsyncExitStack() as stack:
                watched = address and round_
                engine_gaps_s = await stack.enter_async_context(tap(address, 8000)) if watched else []
                figures = await stack.enter_async_context(client(load))
            if not round_:
                continue
            tally = tallies[arm.name]
            tally.server_cpu_s += cpu_s(arm.process) - before_s
            tally.requests += asked
            tally.tokens += asked * tokens
            tally.events += figures["events"]
            tally.client_cpu_s += figures["cpu_s"]
            tally.wall_s += figures["wall_s"]
            tally.first_s += figures["first_s"]
            tally.gaps_s += figures["gaps_s"]
            tally.engine_gaps_s += engine_gaps_s
    return tallies


def _warn(what: str, tallies: dict[str, Tally]) -> None:
    for name, tally in tallies.items():
        if tally.client_bound:
            print(
                f"note: {what}, {name}: the client took {tally.client_cpu_s / tally.wall_s:.0%} of a core; "
                "wall-clock figures of it are the client's",
                file=sys.stderr,
            )


async def measure_requests(plan: Plan, path: str, roles: Sequence[str]) -> list[Row]:
    """Short streamed chat answers of one token: what a request costs whatever its length."""
    async with fleet(plan, "instant", roles) as (arms, _):
        tallies = await rounds(arms, plan.rounds, requests=plan.requests, connections=plan.connections, tokens=1)
    _warn(f"{path} requests", tallies)
    return [
        (f"{path}: requests/s per core", {n: t.requests / t.server_cpu_s for n, t in tallies.items()}),
        (f"{path}: CPU s per 1,000 requests", {n: t.server_cpu_s / t.requests * 1000 for n, t in tallies.items()}),
        (f"{path}: requests/s, wall clock", {n: t.requests / t.wall_s for n, t in tallies.items()}),
        (f"{path}: first token p50 ms", {n: statistics.median(t.first_s) * 1e3 for n, t in tallies.items()}),
    ]


async def measure_tokens(plan: Plan, directory: Path) -> list[Row]:
    """Many streams at one token a step."""
    async with fleet(plan, steps_of(plan.step_s, directory), ["both"]) as (arms, (address,)):
        tallies = await rounds(
            arms,
            plan.rounds,
            requests=plan.streams,
            connections=plan.streams,
            tokens=plan.output_tokens,
            gap_s=plan.step_s,
            address=address,
        )
    _warn("tokens", tallies)
    # The bare application has no engine: its gap is its own sleep.
    own = {n: _p99(t.engine_gaps_s) if n != "bare" else plan.step_s for n, t in tallies.items()}
    return [
        ("paced: tokens/s per core", {n: t.tokens / t.server_cpu_s for n, t in tallies.items()}),
        ("paced: CPU s per million tokens", {n: t.server_cpu_s / t.tokens * 1e6 for n, t in tallies.items()}),
        ("paced: share of a core", {n: t.server_cpu_s / t.wall_s for n, t in tallies.items()}),
        ("paced: p99 gap ms", {n: _p99(t.gaps_s) * 1e3 for n, t in tallies.items()}),
        ("paced: engine's own p99 gap ms", {n: gap * 1e3 for n, gap in own.items()}),
        ("paced: p99 gap added ms", {n: (_p99(t.gaps_s) - own[n]) * 1e3 for n, t in tallies.items()}),
    ]


async def measure_burst(plan: Plan) -> list[Row]:
    """An engine that never waits: the gateway is the limit, and frames that it cannot take are merged for it."""
    async with fleet(plan, "instant", ["both"]) as (arms, _):
        tallies = await rounds(arms, plan.rounds, requests=96, connections=32, tokens=500)
    _warn("burst", tallies)
    return [
        ("burst: tokens/s, wall clock", {n: t.tokens / t.wall_s for n, t in tallies.items()}),
        ("burst: tokens/s per core", {n: t.tokens / t.server_cpu_s for n, t in tallies.items()}),
        ("burst: tokens an event", {n: t.tokens / t.events for n, t in tallies.items()}),
    ]


async def measure_open(plan: Plan, count: int, directory: Path) -> list[Row]:
    """Resident memory by open stream, from before the first to when all have had a token."""
    step_s = 2.0
    memory: dict[str, float] = {}
    async with fleet(plan, steps_of(step_s, directory), ["both"]) as (arms, _):
        for arm in arms:
            async with client(arm.spec(1, 0.0) | {"requests": 8, "connections": 8}):
                pass  # what the first request alone pays for
            before = arm.process.memory_info().rss
            load = arm.spec(100, step_s) | {"requests": count, "connections": count, "hold": True, "ramp_s": 0.15}
            async with client(load):
                await asyncio.sleep(step_s)
                memory[arm.name] = (arm.process.memory_info().rss - before) / count / 1024
    return [(f"{count:,} open: KiB RSS a stream", memory)]


def _p99(gaps_s: Sequence[float]) -> float:
    return statistics.quantiles(gaps_s, n=100)[-1] if len(gaps_s) > 1 else 0.0


PARTS = ("local", "remote", "paced", "burst", "open")


async def measure(plan: Plan, parts: Sequence[str]) -> AsyncIterator[list[Row]]:
    with tempfile.TemporaryDirectory(prefix="gateway-throughput-") as name:
        directory = Path(name)
        plan = replace(plan, model=plan.model or word_model(directory / "words"))
        if "local" in parts:
            yield await measure_requests(plan, "local", ["both"])
        if "remote" in parts:
            yield await measure_requests(plan, "remote", ["prefill", "decode"])
        if "paced" in parts:
            yield await measure_tokens(plan, directory)
        if "burst" in parts:
            yield await measure_burst(plan)
        if "open" in parts:
            for count in plan.open_streams:
                yield await measure_open(plan, count, directory)


def show(rows: Sequence[Row], *, header: bool) -> None:
    names = list(rows[0][1])
    if header:
        others = [f"/{name}" for name in names if name != "gateway"]
        print(f"{'':<36}" + "".join(f"{name:>12}" for name in [*names, *others]))
    for label, values in rows:
        own = values["gateway"]
        ratios = [own / values[name] if values[name] > 0 else float("nan") for name in names if name != "gateway"]
        cells = [f"{values[name]:>12,.2f}" for name in names] + [f"{ratio:>12.2f}" for ratio in ratios]
        print(f"{label:<36}" + "".join(cells), flush=True)


async def report(plan: Plan, parts: Sequence[str], as_json: bool) -> None:
    rows: list[Row] = []
    began_s = time.monotonic()
    async for more in measure(plan, parts):
        if not as_json:
            show(more, header=not rows)
        rows += more
    if as_json:
        print(json.dumps({"seconds": time.monotonic() - began_s, "figures": dict(rows)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=400, help="short requests a round")
    parser.add_argument("--connections", type=int, default=16, help="that send them")
    parser.add_argument("--streams", type=int, default=256, help="paced streams at once")
    parser.add_argument("--output-tokens", type=int, default=60, help="of each paced stream")
    parser.add_argument("--step-ms", type=float, default=50.0, help="between two tokens of a paced stream")
    parser.add_argument("--open-streams", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--model", default="", help="directory with a tokenizer; made-up words without one")
    parser.add_argument("--against", type=Path, help="another checkout whose gateway takes turns with this one")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    plan = Plan(
        args.rounds,
        args.requests,
        args.connections,
        args.streams,
        args.output_tokens,
        args.step_ms / 1000,
        tuple(args.open_streams),
        args.model,
        args.against,
    )
    asyncio.run(report(plan, args.parts, args.json))


if __name__ == "__main__":
    sigterm_as_ctrl_c()
    main()
