"""Arms against each other on the same schedules: who wins where, by how much, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.arms.base import Arm
from loadgen.arms.virtual import VirtualArm
from loadgen.arrivals.process import Kind
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.measure.interval import Interval, mean_interval, paired_difference
from loadgen.trial import Trial, needs_reference


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one rate, for one class ("" is all), over the repetitions.

    `good_per_gpu` counts good requests per second of *sending* and GPU: over the whole duration, an arm whose last
    long answer drains slowly would look worse though every request was good.
    """

    rate: float | None
    klass: str
    arm: str
    attainment: tuple[float, ...]
    good_per_gpu: tuple[float, ...]
    valid: bool = True


@dataclass(frozen=True, slots=True)
class Contest:
    """An arm against the first one at one rate and class; differences are ours - theirs, paired by repetition.

    `winner` is "" where the interval includes zero, where there is nothing to build one from, and where a run
    was invalid.
    """

    rate: float | None
    klass: str
    arm: str
    against: str
    repetitions: int
    good_per_gpu: float
    good_per_gpu_against: float
    attainment: float
    attainment_against: float
    difference: Interval
    attainment_difference: Interval
    winner: str
    valid: bool


def check_equal(arms: Sequence[Arm], *, allow_unequal: bool) -> None:
    """A comparison at unequal numbers of GPUs is one of budgets, not of layouts."""
    names = [arm.name for arm in arms]
    if len(set(names)) != len(names):
        raise LoadgenError(f"compare: two arms have the same name ({', '.join(names)})")
    if len(arms) < 2:
        raise LoadgenError("compare: needs at least two arms")
    if len({arm.gpus for arm in arms}) > 1 and not allow_unequal:
        counts = ", ".join(f"{arm.name} {arm.gpus:g}" for arm in arms)
        raise LoadgenError(f"compare: arms have unequal numbers of GPUs ({counts}); --allow-unequal compares per GPU")


def check_shared_limits(experiment: Experiment) -> None:
    """Multiples of an arm's own unloaded latency would let the slower arm be slower."""
    if needs_reference(experiment):
        name = experiment.policy.name
        raise LoadgenError(f"compare: {name} measures each target by itself unloaded; arms need limits that they share")


def alike(experiment: Experiment, arms: Sequence[Arm]) -> bool:
    """Whether repetitions would all be the first one again, and their spread nothing but made up: a replay, simulated."""
    if experiment.arrivals.kind is not Kind.REPLAY or not all(isinstance(arm, VirtualArm) for arm in arms):
        return False
    return experiment.schedule(repetition=0).digest == experiment.schedule(repetition=1).digest


def order(arms: int, repetition: int) -> list[int]:
    """Interleaved: every other repetition runs backwards, and pairs of them begin with another arm."""
    turn = [(i + repetition // 2) % arms for i in range(arms)]
    return turn[::-1] if repetition % 2 else turn


def cells(trials: Sequence[Trial]) -> list[Cell]:
    grouped: dict[tuple[float | None, str, str], list[Trial]] = {}
    for trial in trials:
        for klass in ("", *(trial.measures.by_class if len(trial.measures.by_class) > 1 else ())):
            grouped.setdefault((trial.rate, klass, trial.arm), []).append(trial)
    return [_cell(*key, sorted(part, key=lambda t: t.repetition)) for key, part in grouped.items()]


def _cell(rate: float | None, klass: str, arm: str, trials: Sequence[Trial]) -> Cell:
    groups = [t.measures.by_class[klass] if klass else t.measures.overall for t in trials]
    seconds = [t.schedule.window_s or t.measures.duration_s for t in trials]
    good = [g.counts["good"] / s / t.gpus for g, s, t in zip(groups, seconds, trials, strict=True)]
    valid = not any(t.measures.invalid for t in trials)
    return Cell(rate, klass, arm, tuple(g.attainment or 0.0 for g in groups), tuple(good), valid)


def contests(found: Sequence[Cell], first: str) -> Iterator[Contest]:
    """Every arm against the first one, at each rate and class where both ran equally often."""
    baseline = {(c.rate, c.klass): c for c in found if c.arm == first}
    for cell in found:
        theirs = baseline.get((cell.rate, cell.klass))
        if cell.arm == first or theirs is None or len(theirs.attainment) != len(cell.attainment):
            continue
        difference = paired_difference(cell.good_per_gpu, theirs.good_per_gpu)
        valid = cell.valid and theirs.valid
        winner = "" if not valid else cell.arm if difference.low > 0 else first if difference.high < 0 else ""
        repetitions = len(cell.attainment)
        yield Contest(
            cell.rate,
            cell.klass,
            cell.arm,
            first,
            repetitions,
            sum(cell.good_per_gpu) / repetitions,
            sum(theirs.good_per_gpu) / repetitions,
            sum(cell.attainment) / repetitions,
            sum(theirs.attainment) / repetitions,
            difference,
            paired_difference(cell.attainment, theirs.attainment),
            winner,
            valid,
        )


def verdict(c: Contest) -> str:
    """One honest line."""
    where = f"at {c.rate:g} req/s" if c.rate is not None else "on this schedule"
    who = f", class {c.klass}" if c.klass else ""
    figures = (
        f"{c.arm} {c.good_per_gpu:.3f} against {c.against} {c.good_per_gpu_against:.3f} good req/s per GPU"
        f" ({c.good_per_gpu - c.good_per_gpu_against:+.3f}"
    )
    attained = f"{c.attainment:.1%} against {c.attainment_against:.1%} attained"
    if c.repetitions < 2:
        return f"{where}{who}: {figures}), {attained}; one repetition, so nothing is known of the uncertainty"
    interval = f", 95 %: {c.difference.low:+.3f} to {c.difference.high:+.3f})"
    outcome = f"{c.winner} wins" if c.winner else "no difference shown" if c.valid else "no verdict, a run was invalid"
    return f"{where}{who}: {figures}{interval}, {attained}: {outcome}"


def comparison_document(
    trials: Sequence[Trial], arms: Sequence[Arm], searches: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Also checks that the arms really did the same work."""
    found = cells(trials)
    held = list(contests(found, arms[0].name))
    return {
        "arms": [{"name": a.name, "gpus": a.gpus, "origin": a.origin} for a in arms],
        "first": arms[0].name,
        "same_work": same_work(trials),
        "cells": [
            {
                "rate": c.rate,
                "class": c.klass,
                "arm": c.arm,
                "repetitions": len(c.attainment),
                "attainment": sum(c.attainment) / len(c.attainment),
                "attainment_95": mean_interval(c.attainment),
                "good_per_gpu": sum(c.good_per_gpu) / len(c.good_per_gpu),
                "good_per_gpu_95": mean_interval(c.good_per_gpu),
            }
            for c in found
        ],
        "contests": [
            {
                "rate": c.rate,
                "class": c.klass,
                "arm": c.arm,
                "against": c.against,
                "repetitions": c.repetitions,
                "good_per_gpu": c.good_per_gpu,
                "good_per_gpu_against": c.good_per_gpu_against,
                "attainment": c.attainment,
                "attainment_against": c.attainment_against,
                "difference": c.difference,
                "attainment_difference": c.attainment_difference,
                "winner": c.winner,
                "valid": c.valid,
            }
            for c in held
        ],
        "verdicts": [*(verdict(c) for c in held), *_search_verdicts(searches)],
    }


def same_work(trials: Sequence[Trial]) -> bool:
    """Every (rate, repetition) had one schedule, whatever the arm."""
    digests: dict[tuple[float | None, int], set[str]] = {}
    for trial in trials:
        digests.setdefault((trial.rate, trial.repetition), set()).add(trial.schedule.digest)
    return all(len(found) == 1 for found in digests.values())


def _search_verdicts(searches: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for goal in dict.fromkeys(a["goal"] for s in searches for a in s["answers"]):
        rates = {s["arm"]: next(a["per_gpu"] for a in s["answers"] if a["goal"] == goal) for s in searches}
        said = ", ".join(f"{arm} {'never' if rate is None else f'{rate:.3f}'}" for arm, rate in rates.items())
        lines.append(f"highest rate with {goal:.0%} attained, req/s per GPU: {said}")
    return lines
