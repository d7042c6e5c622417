"""The error budget of fairness: completion, slowdown and abandonment per class. Pure (R-19, R-20)."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil


class Outcome(StrEnum):
    """How a request ended, as far as fairness is concerned. Refused and failed ones count (invariant 10)."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    FAILED = "failed"


class Measure(StrEnum):
    COMPLETION = "completion"
    SLOWDOWN = "slowdown"
    ABANDONMENT = "abandonment"


@dataclass(frozen=True, slots=True)
class FairBounds:
    """What is promised to a class: shares of its requests, and `slowdown`, the most that end-to-end time may be of the
    unloaded estimate for all but `slow_share` of the completed ones."""

    incomplete_share: float = 0.05
    slowdown: float = 5.0
    slow_share: float = 0.05
    abandoned_share: float = 0.02

    def __post_init__(self) -> None:
        if not all(0 < share <= 1 for share in (self.incomplete_share, self.slow_share, self.abandoned_share)):
            raise ValueError("shares must be in (0, 1]")
        if self.slowdown < 1:
            raise ValueError("slowdown must be 1 or more")


@dataclass(frozen=True, slots=True)
class Spending:
    """One budget. `spent` is used up by `allowed`: 1 is all of it."""

    bad: int
    of: int
    allowed_share: float

    @property
    def share(self) -> float:
        return self.bad / self.of if self.of else 0.0

    @property
    def spent(self) -> float:
        return self.share / self.allowed_share


@dataclass(frozen=True, slots=True)
class Alarm:
    """A budget is spent. It is over when the window holds less again."""

    klass: str
    measure: Measure
    spending: Spending


@dataclass(frozen=True, slots=True)
class ClassReport:
    """One row of the table per class. Slowdowns are None while nothing has completed. `alarms`: the budgets that are
    spent, where there are requests enough to say so."""

    klass: str
    span_s: float
    outcomes: Mapping[Outcome, int]
    slowdown_p50: float | None
    slowdown_p99: float | None
    spending: Mapping[Measure, Spending]
    alarms: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class _Ending:
    at_s: float
    outcome: Outcome
    slowdown: float | None
    slow: bool


@dataclass(slots=True)
class _Window:
    bounds: FairBounds
    endings: deque[_Ending] = field(default_factory=deque)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    measured: int = 0
    slow: int = 0

    def add(self, ending: _Ending) -> None:
        self.endings.append(ending)
        self._count(ending, 1)

    def trim(self, before_s: float, most: int) -> None:
        while self.endings and (self.endings[0].at_s <= before_s or len(self.endings) > most):
            self._count(self.endings.popleft(), -1)

    def spending(self) -> dict[Measure, Spending]:
        total, bounds = len(self.endings), self.bounds
        incomplete = total - self.outcomes[Outcome.COMPLETED]
        return {
            Measure.COMPLETION: Spending(incomplete, total, bounds.incomplete_share),
            Measure.SLOWDOWN: Spending(self.slow, self.measured, bounds.slow_share),
            Measure.ABANDONMENT: Spending(self.outcomes[Outcome.ABANDONED], total, bounds.abandoned_share),
        }

    def _count(self, ending: _Ending, by: int) -> None:
        self.outcomes[ending.outcome] += by
        self.measured += by * (ending.slowdown is not None)
        self.slow += by * ending.slow


@dataclass(slots=True)
class FairnessBudget:
    """What was allowed and what is spent, over the last `window_s` and at most `most` requests of each class.

    No alarm before a class has `least` requests in its window: one of three is not 33 %.
    """

    default: FairBounds = field(default_factory=FairBounds)
    classes: Mapping[str, FairBounds] = field(default_factory=dict)
    window_s: float = 600.0
    most: int = 20_000
    least: int = 20
    _windows: dict[str, _Window] = field(default_factory=dict)

    def adopt(self, default: FairBounds, classes: Mapping[str, FairBounds]) -> None:
        """Other bounds from now on. Endings keep the slowdown bound that they were judged by."""
        self.default, self.classes = default, classes
        for klass, window in self._windows.items():
            window.bounds = classes.get(klass, default)

    def ended(
        self, klass: str, outcome: Outcome, now_s: float, e2e_s: float | None = None, unloaded_s: float | None = None
    ) -> None:
        """`e2e_s` from arrival to the last token, `unloaded_s` what it would have taken alone; both for completed
        requests only."""
        slowdown = e2e_s / unloaded_s if outcome is Outcome.COMPLETED and e2e_s is not None and unloaded_s else None
        bounds = self.classes.get(klass, self.default)
        window = self._windows.setdefault(klass, _Window(bounds))
        window.add(_Ending(now_s, outcome, slowdown, slowdown is not None and slowdown > bounds.slowdown))
        window.trim(now_s - self.window_s, self.most)

    def spending(self, klass: str, now_s: float) -> Mapping[Measure, Spending]:
        window = self._windows.get(klass, _Window(self.classes.get(klass, self.default)))
        window.trim(now_s - self.window_s, self.most)
        return window.spending()

    def alarms(self, now_s: float) -> list[Alarm]:
        """All budgets that are spent, the worst first."""
        spent = [
            Alarm(klass, measure, spending)
            for klass in self._windows
            for measure, spending in self.spending(klass, now_s).items()
            if self._alarming(spending)
        ]
        return sorted(spent, key=lambda alarm: -alarm.spending.spent)

    def _alarming(self, spending: Spending) -> bool:
        return spending.of >= self.least and spending.spent >= 1

    def snapshot(self, now_s: float) -> list[ClassReport]:
        """For metrics and reports, in the order of names. Costs O(n log n); not for every request."""
        return [self._report(klass, now_s) for klass in sorted(self._windows)]

    def _report(self, klass: str, now_s: float) -> ClassReport:
        spending = self.spending(klass, now_s)
        window = self._windows[klass]
        slowdowns = sorted(ending.slowdown for ending in window.endings if ending.slowdown is not None)
        return ClassReport(
            klass,
            now_s - window.endings[0].at_s if window.endings else 0.0,
            {outcome: window.outcomes[outcome] for outcome in Outcome},
            _quantile(slowdowns, 0.5),
            _quantile(slowdowns, 0.99),
            spending,
            tuple([measure for measure, each in spending.items() if self._alarming(each)]),
        )


def _quantile(ascending: list[float], level: float) -> float | None:
    """The smallest value that at least `level` of all do not exceed."""
    if not ascending:
        return None
    return ascending[ceil(level * len(ascending)) - 1]
