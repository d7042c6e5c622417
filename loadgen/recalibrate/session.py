"""Runs a recalibration for a person: progress on stderr, the comparison on stdout, a record and a new table on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.cli.session import Session
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.recalibrate.components import components_of
from loadgen.recalibrate.recalibration import (
    Observed,
    Recalibrated,
    arm_for,
    base_table,
    check_model,
    on_table,
    recalibrate,
)
from loadgen.recalibrate.show import SCHEMA, document, observed_document, show
from loadgen.recalibrate.versions import next_version, place_of, write_version
from loadgen.report.terminal import terminal
from loadgen.slo.policy import Policy, build_policy
from loadgen.workload.spec import Catalogue

#: Of tables, where no terminal sets a width.


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """As given. `tables`: where versions of a built-in table go; those of a file stay beside it."""

    layouts: Sequence[str]
    table: str
    target: str
    workload: Sequence[str]
    goodput: Sequence[str]
    rate: float
    duration_s: float
    seed: int = 0
    timeout_s: float = 600.0
    tables: Path = Path("tables")
    out: Path = Path("recalibration")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failed`: why there is no new table although nobody asked for none; "" where all is well."""

    interrupted: bool
    failed: str = ""


def check(words: Words) -> Experiment:
    """Everything that can be wrong before anything is started. Raises LoadgenError."""
    base_table(words.table)
    if words.target.partition(":")[0] not in ("up", "sim") and len(words.layouts) > 1:
        raise LoadgenError("--target: a fleet that runs has one layout; name that one, or let up:… start each")
    for layout in words.layouts:
        on_table(layout, words.table, words.timeout_s)
        arm_for(layout, words.target, words.timeout_s)
    policy = build_policy(words.goodput)
    if not policy.rules:
        raise LoadgenError("a bottleneck is what breaks a limit: --goodput 'ttft:… tpot:…'")
    if not 0 < words.rate < float("inf") or not 0 < words.duration_s < float("inf"):
        raise LoadgenError("--rate and --duration must be above 0")
    return Experiment(
        Catalogue().mix(words.workload),
        Arrivals(Kind.POISSON, rate=words.rate),
        policy,
        seed=words.seed,
        duration_s=words.duration_s,
    )


def run_recalibration(words: Words, experiment: Experiment, *, dry_run: bool, as_json: bool, quiet: bool) -> Outcome:
    """`experiment`: of words that were checked. Raises LoadgenError for a target that cannot be run."""
    observed, interrupted = _observe(words, experiment, quiet)
    if interrupted or not observed:
        return _cut_short(words, observed)
    unserved = [one.layout for one in observed if not one.components.completed]
    if unserved:
        _record(words, {"schema": SCHEMA, "table": words.table, "layouts": observed_document(observed)})
        return Outcome(False, f"no request was answered by {'; '.join(unserved)}")
    try:
        check_model(words.table, base_table(words.table), observed)
    except LoadgenError:
        _record(words, {"schema": SCHEMA, "table": words.table, "layouts": observed_document(observed)})
        raise
    if not quiet:
        Console(stderr=True).print("simulating the same trace on the table")
    found = recalibrate(words.table, observed, experiment, words.target, words.timeout_s)
    invalid = [f"{one.layout}: {why}" for one in observed for why in one.invalid]
    written = "" if invalid else _write(words, found, dry_run)
    data = document(found, written, "; ".join(invalid))
    _record(words, data)
    console = terminal(markup=True)
    if as_json:
        console.file.write(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() + "\n")
        return Outcome(False, _no_table(invalid))
    show(found, console)
    said = f"new version: {written}" if written else "no table written"
    console.print(f"{said}; record: {words.out / 'recalibration.json'}", highlight=False, soft_wrap=True)
    if written:
        console.print(f"use it: tandem up --engine simulated --profile file:{written}", highlight=False, soft_wrap=True)
    return Outcome(False, _no_table(invalid))


def _no_table(invalid: Sequence[str]) -> str:
    """A table made of a client's own delays would be worse than the old one."""
    return f"no table was made of runs that are invalid: {'; '.join(invalid)}" if invalid else ""


def _observe(words: Words, experiment: Experiment, quiet: bool) -> tuple[tuple[Observed, ...], bool]:
    assert isinstance(experiment.policy, Policy)
    session = Session(quiet)

    async def main(session: Session) -> None:
        for layout in words.layouts:
            if session.interrupted:
                return
            arm = arm_for(layout, words.target, words.timeout_s)
            session.say(f"{layout}: {arm.origin}")
            async with arm:
                await session.trial(experiment, arm)

    session.run(main)
    policy = experiment.policy
    observed = tuple(
        Observed(
            trial.arm,
            trial.origin,
            components_of(trial.observation.results, trial.observation.telemetry, policy),
            trial.observation.complete,
            trial.measures.invalid,
            trial.observation.model,
        )
        for trial in session.trials
    )
    return observed, session.interrupted


def _cut_short(words: Words, observed: tuple[Observed, ...]) -> Outcome:
    if observed:
        data = {"schema": SCHEMA, "table": words.table, "layouts": observed_document(observed), "written": ""}
        _record(words, data | {"incomplete": "interrupted: no table was made"})
    return Outcome(True)


def _write(words: Words, found: Recalibrated, dry_run: bool) -> str:
    """Two at once take different numbers."""
    if dry_run:
        return ""
    folder, name = place_of(words.table, words.tables)
    while True:
        version, path = next_version(folder, name)
        try:
            write_version(found.versioned(version), path)
        except FileExistsError:
            continue
        except OSError as error:
            raise LoadgenError(f"cannot write {path}: {error.strerror}") from None
        return str(path)


def _record(words: Words, data: object) -> None:
    try:
        words.out.mkdir(parents=True, exist_ok=True)
        (words.out / "recalibration.json").write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise LoadgenError(f"--out {words.out}: {error.strerror}") from None
