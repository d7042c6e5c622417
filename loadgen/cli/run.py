"""`loadgen run`: one target, one or many rates."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from loadgen.arms.base import Arm
from loadgen.cli import build
from loadgen.cli.arms import arm as make_arm
from loadgen.cli.finish import finish
from loadgen.cli.options import (
    ClientOptions,
    Gpus,
    JudgeOptions,
    LoadOptions,
    OutputOptions,
    TargetWords,
    with_options,
)
from loadgen.cli.references import References
from loadgen.cli.session import Session
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.slo.relative import ReferenceRun
from loadgen.trial import needs_reference, wants_lowest_load


def register(app: typer.Typer) -> None:
    app.command("run")(command)


@with_options(load=LoadOptions, judge=JudgeOptions, client=ClientOptions, output=OutputOptions)
def command(
    target: TargetWords,
    rate: Annotated[
        str, typer.Option("--rate", "-r", help="Requests per second; several parted by commas.", rich_help_panel="Load")
    ] = "",
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Runs per rate, each with its own seed.", rich_help_panel="Load")
    ] = 1,
    gpus: Gpus = None,
    *,
    load: LoadOptions,
    judge: JudgeOptions,
    client: ClientOptions,
    output: OutputOptions,
) -> None:
    """Load one target and report what it served within its SLO.

    Example:

      loadgen run localhost:8000 -w azure-conv --rate 2,4,8 -d 120 \\
        --goodput "ttft:500 tpot:50"
    """
    started = datetime.now(UTC)
    rates = choose_rates(rate, load)
    local = build.tokenizer(client)
    experiment = build.experiment(load, judge, local, rates[0])
    build.check_gpus(gpus)
    one = make_arm("target", target, gpus, client, build.settings(client, local))
    build.check_output(output)
    session = Session(output.quiet)

    async def main(session: Session) -> None:
        async with one:
            await sweep(session, experiment, one, rates, repeat, judge.reference)

    session.run(main)
    config = build.config("run", load=load, judge=judge, client=client, rate=rate, repeat=repeat, target=target)
    finish("run", session, experiment, output, config, started)


async def sweep(
    session: Session, experiment: Experiment, arm: Arm, rates: Sequence[float | None], repeat: int, alone: int
) -> None:
    """Every rate so many times, each against its own reference; `alone` requests make one, 0 by what the SLO needs."""
    by_lowest = wants_lowest_load(experiment)
    by_request = needs_reference(experiment) and not by_lowest
    references = References(session, experiment, arm, rates, alone or (100 if by_request else 0))
    lowest: ReferenceRun | None = None
    for value in sorted(rates, key=lambda r: r or 0.0) if by_lowest else rates:
        for repetition in range(repeat):
            reference = await references.of(value, repetition) or lowest
            if session.interrupted:
                return
            trial = await session.trial(experiment, arm, value, repetition, reference)
            if by_lowest:
                lowest = lowest or ReferenceRun.of(trial.observation.results)


def choose_rates(text: str, load: LoadOptions) -> list[float | None]:
    """A rate is needed exactly where the arrivals have none of their own."""
    if load.arrivals.value in ("replay", "closed"):
        if text:
            raise LoadgenError(
                f"--rate has no meaning with --arrivals {load.arrivals}; see --time-scale, --concurrency"
            )
        return [None]
    if not text:
        raise LoadgenError("--rate is missing: how many requests per second?")
    return [*build.rates(text)]
