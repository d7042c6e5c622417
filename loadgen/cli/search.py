"""`loadgen search`: the highest rate that keeps attainment at 90 % and at 99 %."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

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
from loadgen.experiment import Experiment, attainment_of
from loadgen.failure import LoadgenError
from loadgen.report.document import search_document
from loadgen.search import Probe, all_or_nothing, pooled, search
from loadgen.slo.policy import Policy
from loadgen.trial import Trial, keeps_requests, needs_reference, wants_lowest_load


def register(app: typer.Typer) -> None:
    app.command("search")(command)


@with_options(load=LoadOptions, judge=JudgeOptions, client=ClientOptions, output=OutputOptions)
def command(
    target: TargetWords,
    goals: Annotated[
        str,
        typer.Option(
            "--goals",
            help="Attainment to keep, parted by commas; not for SLOs that judge whole runs.",
            rich_help_panel="Search",
        ),
    ] = "0.9,0.99",
    start: Annotated[float, typer.Option("--start", help="First rate to try.", rich_help_panel="Search")] = 1.0,
    lowest: Annotated[float, typer.Option("--lowest", help="Never below this rate.", rich_help_panel="Search")] = 0.01,
    highest: Annotated[
        float, typer.Option("--highest", help="Never above this rate.", rich_help_panel="Search")
    ] = 1000.0,
    precision: Annotated[
        float,
        typer.Option("--precision", min=0.001, help="Stop when the bracket is this narrow.", rich_help_panel="Search"),
    ] = 0.05,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Runs per rate, each with its own seed.", rich_help_panel="Search")
    ] = 1,
    gpus: Gpus = None,
    *,
    load: LoadOptions,
    judge: JudgeOptions,
    client: ClientOptions,
    output: OutputOptions,
) -> None:
    """Find the highest rate within the SLO, by bisection.

    Example:

      loadgen search localhost:8000 -w azure-conv -d 120 --start 2 \\
        --goodput "ttft:500 tpot:50"
    """
    started = datetime.now(UTC)
    local = build.tokenizer(client)
    experiment = build.experiment(load, judge, local, start)
    shares = [1.0] if needs_reference(experiment) else goal_shares(goals)
    limits = (start, lowest, highest, precision)
    check_searchable(experiment, load)
    check_reference(experiment, limits[:3])
    build.check_gpus(gpus)
    one = make_arm("target", target, gpus, client, build.settings(client, local))
    build.check_output(output)
    session = Session(output.quiet)
    found: list[dict[str, Any]] = []

    async def main(session: Session) -> None:
        async with one:
            found.append(await search_arm(session, experiment, one, shares, limits, repeat, judge.reference))

    session.run(main)
    config = build.config("search", load=load, judge=judge, client=client, target=target, goals=shares, repeat=repeat)
    finish("search", session, experiment, output, config, started, searches=found)
    for answer in (a for s in found for a in s["answers"]):
        if answer["low"] is None:
            whom = "a whole run" if needs_reference(experiment) else f"{answer['goal']:.0%} of requests"
            raise LoadgenError(f"the SLO never held for {whom}: {nearest(session.trials)}")


def goal_shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise LoadgenError(f"--goals {text!r} is not a list of shares such as 0.9,0.99") from None


def check_searchable(experiment: Experiment, load: LoadOptions) -> None:
    if load.arrivals.value in ("replay", "closed"):
        raise LoadgenError(f"a search needs a rate to change; --arrivals {load.arrivals} has none")
    if isinstance(experiment.policy, Policy) and not experiment.policy.rules:
        raise LoadgenError("a search needs an SLO: --goodput 'ttft:… tpot:…' or --slo PRESET")


def check_reference(experiment: Experiment, rates: Sequence[float]) -> None:
    """A form over slowdowns needs one unloaded run that fits every probe."""
    if not needs_reference(experiment) or wants_lowest_load(experiment):
        return
    counted = experiment.count is not None and experiment.duration_s is None
    if not counted or not keeps_requests(experiment, rates):
        raise LoadgenError(
            f"a search by {experiment.policy.name} needs the same requests at every rate, to have run them alone:"
            " --requests N without --duration, storms and sessions of several turns"
        )


async def search_arm(
    session: Session,
    experiment: Experiment,
    arm: Arm,
    goals: Sequence[float],
    limits: tuple[float, float, float, float],
    repeat: int,
    reference: int = 0,
) -> dict[str, Any]:
    """`limits`: start, lowest and highest rate, precision. `reference`: requests to run alone first."""
    start, lowest, highest, precision = limits
    whole = needs_reference(experiment)
    references = References(session, experiment, arm, [start], (reference or 100) if whole else 0)

    async def measure(rate: float) -> Probe:
        trials = []
        for repetition in range(repeat):
            alone = await references.of(rate, 0 if wants_lowest_load(experiment) else repetition)
            if not session.interrupted:
                trials.append(await session.trial(experiment, arm, rate, repetition, alone))
        probe = probe_of(rate, trials)
        share = ("held" if probe.attainment else "not held") if whole else f"{probe.attainment:.1%}"
        session.say(f"{arm.name} {rate:.4g}/s: {share}{', not stationary' if probe.saturated else ''}")
        return probe

    stopped: Callable[[], bool] = lambda: session.interrupted  # noqa: E731
    probes, answers = await search(
        measure, goals, start=start, lowest=lowest, highest=highest, precision=precision, stopped=stopped
    )
    return search_document(arm.name, arm.gpus, probes, answers, lowest, highest, whole_runs=whole)


def probe_of(rate: float, trials: Sequence[Trial]) -> Probe:
    valid = not any(t.measures.invalid for t in trials)
    saturated = [t.measures.saturation.saturated for t in trials]
    if any(t.measures.relative is not None for t in trials):
        held = [attainment_of(t.measures) == 1.0 for t in trials]
        return all_or_nothing(rate, held, saturated, valid)
    flags = [[j.good for j in sorted(t.measures.judged, key=lambda j: j.result.intended_s)] for t in trials]
    return pooled(rate, flags, saturated, valid)


def nearest(trials: Sequence[Trial]) -> str:
    """Why, in figures: the best that was seen."""
    groups = [t.measures.overall for t in trials if t.measures.overall.completed]
    if not groups:
        return "no request completed"
    parts = []
    for metric in ("ttft", "tpot", "e2el"):
        values = [v for g in groups if (v := g.latency_ms[metric].p50) is not None]
        if values:
            parts.append(f"{metric} {min(values):.1f}")
    return f"at the gentlest rate the medians were {', '.join(parts)} ms"
