"""The highest rate that keeps attainment at a goal: bracket, then bisect. The steps are pure; the driver runs trials."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadgen.failure import LoadgenError
from loadgen.measure.interval import Interval, share_over_time


@dataclass(frozen=True, slots=True)
class Probe:
    """What trials at one rate said, repetitions pooled."""

    rate: float
    attainment: float
    interval: Interval
    saturated: bool = False
    valid: bool = True

    def holds(self, goal: float) -> bool:
        """A run whose queue grows without end would fail if it were longer, so it does not hold."""
        return self.attainment >= goal and not self.saturated


@dataclass(frozen=True, slots=True)
class Answer:
    """`low` holds the goal, `high` does not; the truth lies between. `surely` and `surely_not` bound it with 95 % confidence.

    `high` None: the goal still held at the highest rate that was allowed. `low` None: it never held.
    """

    goal: float
    low: float | None
    high: float | None
    surely: float | None
    surely_not: float | None


@dataclass(slots=True)
class Bisection:
    """Chooses the next rate for one goal from all probes so far. Rates are compared on a log scale."""

    goal: float
    start: float
    lowest: float
    highest: float
    precision: float = 0.05
    probes: list[Probe] = field(default_factory=list)

    def next_rate(self) -> float | None:
        """None when the bracket is narrow enough, or there is none to be had."""
        low, high = self.bracket()
        if low is None and high is None:
            return self.start
        if high is None:
            assert low is not None
            return None if low >= self.highest else min(self.highest, low * 2)
        if low is None:
            return None if high <= self.lowest else max(self.lowest, high / 2)
        return None if high / low <= 1 + self.precision else math.sqrt(low * high)

    def bracket(self) -> tuple[float | None, float | None]:
        """Highest rate below every failure that held, and the lowest that failed."""
        failed = [p.rate for p in self.probes if not p.holds(self.goal)]
        high = min(failed, default=None)
        held = [p.rate for p in self.probes if p.holds(self.goal) and (high is None or p.rate < high)]
        return max(held, default=None), high

    def answer(self) -> Answer:
        low, high = self.bracket()
        sure = [p.rate for p in self.probes if p.interval.low >= self.goal and p.holds(self.goal)]
        not_sure = [p.rate for p in self.probes if p.interval.high < self.goal or p.saturated]
        ceiling = min(not_sure, default=None)
        floor = max((r for r in sure if ceiling is None or r < ceiling), default=None)
        return Answer(self.goal, low, high, floor, ceiling)


Measure = Callable[[float], Awaitable[Probe]]


async def search(
    measure: Measure,
    goals: Sequence[float],
    *,
    start: float,
    lowest: float,
    highest: float,
    precision: float = 0.05,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[Probe], list[Answer]]:
    """Finds the answer for every goal; a probe made for one goal serves the others too."""
    if not 0 < lowest <= start <= highest < math.inf:
        raise LoadgenError(f"search: needs 0 < lowest ≤ start ≤ highest, not {lowest:g}, {start:g}, {highest:g}")
    if any(not 0 < goal <= 1 for goal in goals):
        raise LoadgenError("search: goals are shares of offered requests, such as 0.9")
    probes: list[Probe] = []
    for goal in sorted(goals):
        bisection = Bisection(goal, start, lowest, highest, precision, probes)
        while not stopped() and (rate := bisection.next_rate()) is not None:
            probes.append(await measure(rate))
    answers = [Bisection(goal, start, lowest, highest, precision, probes).answer() for goal in sorted(goals)]
    return probes, answers


def all_or_nothing(rate: float, held: Sequence[bool], saturated: Sequence[bool], valid: bool) -> Probe:
    """Repetitions whose SLO judges a whole run: the rate holds when every run held.

    A verdict on a run is no share of requests, so nothing is said of its uncertainty.
    """
    share = 1.0 if held and all(held) else 0.0
    return Probe(rate, share, Interval(0.0, 1.0), sum(saturated) * 2 > len(saturated), valid)


def pooled(rate: float, flags: Sequence[Sequence[bool]], saturated: Sequence[bool], valid: bool) -> Probe:
    """Repetitions at one rate as one probe: attainment over all, saturated when most were."""
    every = [flag for run in flags for flag in run]
    share = sum(every) / len(every) if every else 0.0
    return Probe(rate, share, share_over_time(every), sum(saturated) * 2 > len(saturated), valid)
