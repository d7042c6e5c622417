"""`loadgen compare`: several layouts on the same seeded schedules."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from loadgen.arms.base import Arm
from loadgen.cli import build
from loadgen.cli.arms import arm as make_arm
from loadgen.cli.arms import gpu_counts, named
from loadgen.cli.finish import finish
from loadgen.cli.options import ClientOptions, JudgeOptions, LoadOptions, OutputOptions, with_options
from loadgen.cli.run import choose_rates
from loadgen.cli.search import check_searchable, goal_shares, search_arm
from loadgen.cli.session import Session
from loadgen.compare import alike, check_equal, check_shared_limits, comparison_document, order
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError


def register(app: typer.Typer) -> None:
    app.command("compare")(command)


@with_options(load=LoadOptions, judge=JudgeOptions, client=ClientOptions, output=OutputOptions)
def command(
    arms: Annotated[
        list[str],
        typer.Argument(
            help="NAME=URL, NAME='up:ARGUMENTS' of tandem up or NAME='sim:…'; the first is compared against."
        ),
    ],
    rate: Annotated[
        str, typer.Option("--rate", "-r", help="Requests per second; several parted by commas.", rich_help_panel="Load")
    ] = "",
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            min=1,
            help="Repetitions, arms interleaved; two or more give an uncertainty.",
            rich_help_panel="Load",
        ),
    ] = 3,
    gpus: Annotated[
        list[str] | None, typer.Option("--gpus", help="GPUs of every arm, or NAME=N.", rich_help_panel="SLO")
    ] = None,
    allow_unequal: Annotated[
        bool, typer.Option("--allow-unequal", help="Compare per GPU at unequal numbers of GPUs.", rich_help_panel="SLO")
    ] = False,
    find: Annotated[
        bool,
        typer.Option(
            "--search", help="Also search every arm's highest rate, from the first --rate.", rich_help_panel="Search"
        ),
    ] = False,
    goals: Annotated[
        str, typer.Option("--goals", help="Attainment to keep in the search.", rich_help_panel="Search")
    ] = "0.9,0.99",
    precision: Annotated[
        float, typer.Option("--precision", min=0.001, help="Of the search.", rich_help_panel="Search")
    ] = 0.1,
    one_at_a_time: Annotated[
        bool,
        typer.Option(
            "--one-at-a-time",
            help="Start local arms only for their own runs (fewer resources, slower).",
            rich_help_panel="Search",
        ),
    ] = False,
    *,
    load: LoadOptions,
    judge: JudgeOptions,
    client: ClientOptions,
    output: OutputOptions,
) -> None:
    """Compare layouts at an equal number of GPUs: same times, lengths and prompts, interleaved and repeated.

    Example:

      loadgen compare pd='up:--engine simulated --prefill 4 --decode 4' \\
        dp='up:--engine simulated --colocated 8' \\
        -w azure-code --rate 4,8,16 -d 60 --goodput "ttft:500 tpot:50"
    """
    started = datetime.now(UTC)
    rates = choose_rates(rate, load)
    local = build.tokenizer(client)
    experiment = build.experiment(load, judge, local, rates[0])
    check_shared_limits(experiment)
    shares = goal_shares(goals)
    if find:
        check_searchable(experiment, load)
    parts = [named(text) for text in arms]
    counts = gpu_counts(gpus, [name for name, _ in parts])
    settings = build.settings(client, local)
    made = [make_arm(name, where, counts.get(name), client, settings) for name, where in parts]
    check_equal(made, allow_unequal=allow_unequal)
    build.check_output(output)
    session = Session(output.quiet)
    if repeat > 1 and alike(experiment, made):
        session.say(
            "the same schedule in virtual time gives the same again: one repetition, and no uncertainty to state"
        )
        repeat = 1
    found: list[dict[str, Any]] = []

    async def main(session: Session) -> None:
        async with AsyncExitStack() as stack:
            if not one_at_a_time:
                for one in made:
                    session.say(f"arm {one.name}: {one.origin}")
                    await stack.enter_async_context(one)
                check_equal(made, allow_unequal=allow_unequal)  # now that targets have said what they stand on
            for repetition in range(repeat):
                for value in rates:
                    for i in order(len(made), repetition):
                        await _once(session, experiment, made[i], value, repetition, up=not one_at_a_time)
            for one in made if find else ():
                await _search(session, experiment, one, shares, rates[0], precision, found, up=not one_at_a_time)

    session.run(main)
    config = build.config(
        "compare", load=load, judge=judge, client=client, rate=rate, repeat=repeat, arms=arms, gpus=counts
    )
    searched = [t for t in session.trials if t.rate in set(rates)]
    comparison = comparison_document(searched, made, found)
    finish("compare", session, experiment, output, config, started, searches=found, comparison=comparison)


async def _once(
    session: Session, experiment: Experiment, arm: Arm, rate: float | None, repetition: int, *, up: bool
) -> None:
    if session.interrupted:
        return
    if up:
        await session.trial(experiment, arm, rate, repetition)
        return
    async with arm:
        await session.trial(experiment, arm, rate, repetition)


async def _search(
    session: Session,
    experiment: Experiment,
    arm: Arm,
    goals: list[float],
    start: float | None,
    precision: float,
    found: list[dict[str, Any]],
    *,
    up: bool,
) -> None:
    if session.interrupted:
        return
    if start is None:
        raise LoadgenError("a search needs a --rate to start from")
    limits = (start, start / 64, start * 64, precision)
    # searched in a session of its own: its rates are its own business, and the comparison is over equal rates
    if up:
        found.append(await search_arm(session, experiment, arm, goals, limits, 1))
        return
    async with arm:
        found.append(await search_arm(session, experiment, arm, goals, limits, 1))
