"""Standings in order, how sure the order is, and the sentence that follows from it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.measure.interval import Interval, mean_interval, paired_difference
from loadgen.plan.candidate import Candidate, Family
from loadgen.plan.race import Stage, Standing


@dataclass(frozen=True, slots=True)
class Row:
    """Rates are requests/s of the whole layout; per GPU divide by `candidate.gpus`. `behind`: the winner's lead over it,
    as a share of the winner's rate, with a 95 % interval over paired seeds (None for the winner)."""

    place: int
    candidate: Candidate
    stage: Stage
    rates: dict[float, float]
    intervals: dict[float, Interval]
    bound: float
    bound_by: str
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    behind: float | None
    behind_95: Interval | None
    cut: int
    judged: int

    @property
    def share_of_bound(self) -> float:
        return self.rate / self.bound if self.bound else 0.0

    @property
    def goal(self) -> float:
        return min(self.rates)

    @property
    def rate(self) -> float:
        return self.rates[self.goal]

    @property
    def tied(self) -> bool:
        """The winner's lead over this one is not shown: the interval of the difference has 0 in it."""
        return self.behind_95 is not None and self.behind_95.low <= 0

    @property
    def compared(self) -> bool:
        """Whether the winner and this one ran the same requests, and more than once: else there is no interval."""
        return self.behind_95 is None or math.isfinite(self.behind_95.low)


def rank(standings: Sequence[Standing], goals: Sequence[float]) -> list[Row]:
    """Those with a measured rate. Layouts that came farther go first: their figures are from longer runs."""
    goal = min(goals)
    able = [s for s in standings if s.report is not None and s.rate(goal) > 0]
    order = sorted(able, key=lambda s: (-s.stage, -s.rate(goal)))
    return [_row(place, standing, order[0], goals) for place, standing in enumerate(order, 1)]


def _row(place: int, standing: Standing, winner: Standing, goals: Sequence[float]) -> Row:
    report = standing.report
    assert report is not None
    assert winner.report is not None
    goal = min(goals)
    measured = [g for g in goals if report.rates(g)]
    at = [h.at for h in report.highest if h.goal == goal and h.at is not None]
    ttft = [s.ttft_p99_ms for s in at if s.ttft_p99_ms is not None]
    tpot = [s.tpot_p99_ms for s in at if s.tpot_p99_ms is not None]
    behind, behind_95 = None, None
    if standing is not winner:
        behind = 1 - report.rate(goal) / winner.report.rate(goal)
        behind_95 = _lead(winner, standing, goal)
    return Row(
        place,
        standing.candidate,
        standing.stage,
        {g: report.rate(g) for g in measured},
        {g: mean_interval(report.rates(g)) for g in measured},
        standing.bound.rate_per_s,
        standing.bound.resource.value,
        sum(ttft) / len(ttft) if ttft else None,
        sum(tpot) / len(tpot) if tpot else None,
        behind,
        behind_95,
        sum(s.cut for s in at),
        sum(s.judged for s in at),
    )


def _lead(winner: Standing, other: Standing, goal: float) -> Interval:
    """Of the relative lead, seed by seed. Layouts of different stages ran other requests: nothing is shown of them."""
    if winner.stage != other.stage or winner.report is None or other.report is None:
        return Interval(-math.inf, math.inf)
    ours, theirs = winner.report.rates(goal), other.report.rates(goal)
    both = min(len(ours), len(theirs))
    mean = sum(ours[:both]) / both
    lead = paired_difference(ours[:both], theirs[:both])
    return Interval(lead.low / mean, lead.high / mean)


def best_of(rows: Sequence[Row], family: Family) -> Row | None:
    return next((row for row in rows if row.candidate.family is family), None)


def best_at(rows: Sequence[Row], goal: float) -> list[Row]:
    """The best of each family at another goal than the one that ranks, of those that came as far as the winner; the best
    first."""
    able = [row for row in rows if row.stage is rows[0].stage and row.rates.get(goal)]
    order = sorted(able, key=lambda row: -row.rates[goal])
    return sorted({row.candidate.family: row for row in reversed(order)}.values(), key=lambda row: -row.rates[goal])


@dataclass(frozen=True, slots=True)
class Unreached:
    """Of a family without a row: how many of its layouts the time there was did not suffice to look at."""

    family: Family
    layouts: int
    of: int

    def __str__(self) -> str:
        if self.layouts == self.of:
            return f"none of the {self.of} {self.family.value} layouts was reached in the time there was"
        return (
            f"{self.layouts} of the {self.of} {self.family.value} layouts were not reached in the time there was, and no "
            "other one held the limits"
        )


def unreached(found: Sequence[Candidate], standings: Sequence[Standing], rows: Sequence[Row]) -> list[Unreached]:
    seen = {standing.candidate for standing in standings if standing.stage is not Stage.UNTRIED}
    ranked = {row.candidate.family for row in rows}
    missing = Counter(one.family for one in found if one not in seen and one.family not in ranked)
    return [Unreached(family, count, sum(one.family is family for one in found)) for family, count in missing.items()]


def verdict(rows: Sequence[Row], missing: Sequence[Unreached] = ()) -> str:
    """Says "do not disaggregate" where that is so, "no difference shown" where an interval says no more, and "no advice"
    where one side was not looked at, or each in one run: nobody lost who did not run.

    Only layouts that came as far as the winner are compared: others ran shorter.
    """
    if any(one.family is not Family.MIXED for one in missing):
        return f"No advice: {'; '.join(map(str, missing))}. The best of those that were is {_name(rows[0])}."
    said = _verdict(rows)
    return f"{said} Of mixed ones nothing is said: {missing[0]}." if missing else said


def _verdict(rows: Sequence[Row]) -> str:
    winner, ranked = rows[0], rows
    rows = [row for row in rows if row.stage is winner.stage] or rows
    colocated, apart = best_of(rows, Family.COLOCATED), best_of(rows, Family.DISAGGREGATED)
    mixed = best_of(rows, Family.MIXED)
    others = [row for row in (colocated, apart, mixed) if row is not None and row is not winner]
    if winner.candidate.family is Family.COLOCATED:
        if not others:
            split = best_of(ranked, Family.DISAGGREGATED) or best_of(ranked, Family.MIXED)
            return f"Do not disaggregate: {_unmatched(split, 'split of these GPUs')}"
        best = min(others, key=lambda row: row.place)
        if not best.compared:
            return _one_run(winner, best)
        if best.tied:
            return f"No difference shown between colocated and {_name(best)}; colocated is simpler, so do not disaggregate."
        return f"Do not disaggregate: the best {_name(best)} layout is {_percent(best)} behind."
    if colocated is None:
        return f"{_name(winner).capitalize()}: {_unmatched(best_of(ranked, Family.COLOCATED), 'colocated layout')}"
    if not colocated.compared:
        return _one_run(winner, colocated)
    if colocated.tied:
        return (
            f"No difference shown between {_name(winner)} and colocated ({_percent(colocated)} behind); "
            "colocated is simpler, so do not disaggregate for this traffic."
        )
    return f"{_name(winner).capitalize()}: the best colocated layout is {_percent(colocated)} behind."


def _one_run(winner: Row, other: Row) -> str:
    return (
        f"No advice: {_name(winner)} and {_name(other)} layouts had one run each in the time there was, too few to show "
        f"anything; in it the best {_name(other)} one is {_percent(other)} behind."
    )


def _unmatched(shorter: Row | None, what: str) -> str:
    """Of a family that has nobody to compare: none held the limits, or the time ran out for those that did."""
    if shorter is None or shorter.behind is None:
        return f"no {what} held the limits."
    there = f"{_percent(shorter)} behind" if shorter.behind >= 0 else "ahead, which a shorter look does not show"
    return f"no {what} was looked at as long in the time there was; the best by a shorter look is {there}."


def _name(row: Row) -> str:
    return {Family.COLOCATED: "colocated", Family.DISAGGREGATED: "disaggregated", Family.MIXED: "mixed"}[
        row.candidate.family
    ]


def _percent(row: Row) -> str:
    assert row.behind is not None
    assert row.behind_95 is not None
    spread = ""
    if abs(row.behind_95.low) < 10:
        spread = f" ({row.behind_95.low * 100:.1f} to {row.behind_95.high * 100:.1f} %)"
    return f"{row.behind * 100:.1f} %{spread}"


def pareto(rows: Sequence[Row], prices: dict[Candidate, float] | None = None) -> list[Row]:
    """Rows that no other beats in goodput per GPU, TTFT p99 and TPOT p99 (and price, where there is one) together."""

    def figures(row: Row) -> tuple[float, ...]:
        cost = (prices or {}).get(row.candidate, 0.0)
        nothing = float("inf")
        return (
            row.rate / row.candidate.gpus,
            -(nothing if row.ttft_p99_ms is None else row.ttft_p99_ms),
            -(0.0 if row.tpot_p99_ms is None else row.tpot_p99_ms),
            -cost,
        )

    points = [(row, figures(row)) for row in rows]
    return [
        row
        for row, mine in points
        if not any(all(a >= b for a, b in zip(theirs, mine, strict=True)) and theirs != mine for _, theirs in points)
    ]
