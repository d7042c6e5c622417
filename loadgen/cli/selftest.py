"""`loadgen selftest`: how much load this machine can send before the client is what is measured."""

import asyncio
import gc
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console

from loadgen.arms.url import ClientSettings, UrlArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.client.target import Target
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.report.markup import number
from loadgen.scripted.script import steady
from loadgen.scripted.server import Behaviour, serving
from loadgen.trial import Trial, run_trial
from loadgen.workload.family import fixed

INVALID = 3


def register(app: typer.Typer) -> None:
    app.command("selftest")(command)


def command(
    rate: Annotated[float, typer.Option("--rate", "-r", help="Requests per second.")] = 500.0,
    streams: Annotated[int, typer.Option("--streams", help="Streams open at once, on average.")] = 2000,
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="Tokens per answer.")] = 20,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens per prompt.")] = 128,
    duration: Annotated[float, typer.Option("--duration", "-d", help="Seconds.")] = 15.0,
    processes: Annotated[int, typer.Option("--processes", min=1)] = 1,
) -> None:
    """Send load to a scripted target in a process of its own and report the send lag.

    The target answers at once and spaces its tokens so that the wanted number of
    streams is open.

    Example:

      loadgen selftest
    """
    if not (rate > 0 and streams >= 1 and duration > 0):
        raise LoadgenError("selftest: rate, streams and duration must be above 0")
    itl_s = streams / rate / tokens
    began = os.times()
    trial, target_cpu_s = uvloop.run(_run(rate, tokens, prompt, duration, processes, itl_s))
    used = os.times()
    own = used.user + used.system + used.children_user + used.children_system
    own -= began.user + began.system + began.children_user + began.children_system
    m = trial.measures
    lag = m.load.send_lag_ms
    ttft, itl = m.overall.latency_ms["ttft"], m.overall.latency_ms["itl_chunk"]
    console = Console(highlight=False)
    console.print(
        f"offered {m.overall.offered} requests at {number(m.load.offered_rps)}/s, completed {m.overall.completed}"
    )
    console.print(
        f"peak {m.load.peak_concurrency} open streams, {number(m.load.output_tokens_ps, 0)} tokens/s received"
    )
    console.print(f"send lag ms: p50 {number(lag.p50)}, p99 {number(lag.p99)}, max {number(lag.max)}")
    console.print(f"TTFT ms (target: 0): p50 {number(ttft.p50)}, p99 {number(ttft.p99)}")
    console.print(f"ITL ms (target: {itl_s * 1e3:g}): p50 {number(itl.p50)}, p99 {number(itl.p99)}")
    console.print(f"CPU seconds: load {own - target_cpu_s:.1f}, target {target_cpu_s:.1f}, over {m.duration_s:.1f} s")
    for reason in m.invalid:
        console.print(f"[red]INVALID: {reason}[/red]")
    if m.invalid or m.overall.completed < m.overall.offered:
        raise typer.Exit(INVALID)


async def _run(
    rate: float, tokens: int, prompt: int, duration: float, processes: int, itl_s: float
) -> tuple[Trial, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    target = context.Process(target=_target, args=(theirs, itl_s), daemon=True)
    target.start()
    try:
        url = await asyncio.to_thread(ours.recv)
        experiment = Experiment(fixed(prompt, tokens), Arrivals(Kind.POISSON, rate=rate), duration_s=duration)
        arm = UrlArm("scripted", 1, Target(url), ClientSettings(processes, 60))
        async with arm:
            trial = await run_trial(experiment, arm, rate)
        ours.send("stop")
        return trial, float(await asyncio.to_thread(ours.recv))
    finally:
        await asyncio.to_thread(target.join, 5)
        if target.is_alive():
            target.kill()


def _target(pipe: "Connection[Any, Any]", itl_s: float) -> None:
    """The scripted target's process: says its URL, and at the end its CPU seconds."""

    async def serve() -> None:
        gc.disable()
        async with serving(Behaviour(steady(0.0, itl_s), keep_bodies=False)) as url:
            pipe.send(url)
            await asyncio.to_thread(pipe.recv)

    uvloop.run(serve())
    pipe.send(time.process_time())
