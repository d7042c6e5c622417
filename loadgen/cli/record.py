"""`loadgen workload record`: a schedule as a session-mix trace."""

from pathlib import Path
from typing import Annotated

import typer

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.failure import LoadgenError
from loadgen.schedule import Plan, build
from loadgen.workload.recording import write
from loadgen.workload.spec import Catalogue


def record_workload(
    spec: Annotated[
        list[str], typer.Argument(help="NAME or FILE and KEY=VALUE words in one argument; several make a mix.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Such as mix.jsonl.gz.")],
    rate: Annotated[
        float | None, typer.Option("--rate", "-r", metavar="R", help="Requests/s; without, the times of a trace.")
    ] = None,
    duration: Annotated[float | None, typer.Option("--duration", "-d", metavar="S", help="For how long.")] = None,
    requests: Annotated[int | None, typer.Option("--requests", "-n", min=1, help="How many.")] = None,
    burstiness: Annotated[float, typer.Option("--burstiness", help="Gamma shape: 1 is Poisson.")] = 1.0,
    precision: Annotated[
        str, typer.Option("--precision", metavar="NAME", help="Of the numbers: bfloat16, or WEIGHTS/KV.")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Write a session-mix trace: sessions, turns, prefixes, think times, lengths and precision, to be replayed anywhere.

    Example:

      loadgen workload record "chat-sessions weight=3" agent-sessions \\
        -r 4 -d 600 --precision bfloat16 -o mix.jsonl.gz
    """
    if rate is not None and duration is None and requests is None:
        raise LoadgenError("say how much: --requests N or --duration S")
    if rate is None:
        arrivals = Arrivals(Kind.REPLAY)
    else:
        arrivals = Arrivals(Kind.POISSON if burstiness == 1 else Kind.GAMMA, rate=rate, burstiness=burstiness)
    mix = Catalogue().mix([f"{text} precision={precision}" if precision else text for text in spec])
    schedule = build(Plan(mix, arrivals, seed=seed, count=requests, duration_s=duration))
    about = {"workload": list(spec), "rate": rate, "seed": seed, "notes": list(mix.notes())}
    try:
        write(out, schedule.requests, about)
    except OSError as error:
        raise LoadgenError(f"--out {out}: {error.strerror}") from None
    sessions = len({planned.demand.session for planned in schedule.requests} - {""})
    typer.echo(f"{out}: {schedule.count} requests, {sessions} sessions, {schedule.window_s:.0f} s")
