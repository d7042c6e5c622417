"""One layout at one rate, on two sides: what each attained, and which limits were missed. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.comparison import Row, latencies
from loadgen.measure.verdict import judge_all
from loadgen.result import Result
from loadgen.slo.policy import Policy


@dataclass(frozen=True, slots=True)
class Case:
    """A layout in words of `tandem up`, and requests/s."""

    layout: str
    words: str
    load: str
    rate: float


@dataclass(frozen=True, slots=True)
class Cell:
    """`missed`: requests by the limits they broke (`ttft`, `tpot`, both), or by their verdict where they got no answer.

    `only_truth` and `only_simulated`: requests that are bad on that side alone, by the same. `others`: cores that others
    used meanwhile.
    """

    case: Case
    offered: int
    good: tuple[int, int]
    missed: tuple[Counter[str], Counter[str]]
    only_truth: Counter[str]
    only_simulated: Counter[str]
    rows: tuple[Row, ...]
    others: float = 0.0

    @property
    def points(self) -> float:
        """Attainment of the simulation less that of the truth; as far apart as can be where nothing was offered."""
        return 100 * (self.good[1] - self.good[0]) / self.offered if self.offered else 100.0

    def within(self, bar: float) -> bool:
        return abs(self.points) <= bar


def cell(case: Case, truth: Sequence[Result], simulated: Sequence[Result], policy: Policy, others: float = 0.0) -> Cell:
    """Both sides must have been asked the same requests."""
    sides = [_why(truth, policy), _why(simulated, policy)]
    if sides[0].keys() != sides[1].keys():
        raise ValueError(f"{case.layout}, {case.load}: the two sides were not asked the same requests")
    both = [(sides[0][index], sides[1][index]) for index in sorted(sides[0])]
    return Cell(
        case=case,
        offered=len(both),
        good=(sum(not why for why, _ in both), sum(not why for _, why in both)),
        missed=(Counter(why for why, _ in both if why), Counter(why for _, why in both if why)),
        only_truth=Counter(here for here, there in both if here and not there),
        only_simulated=Counter(there for here, there in both if there and not here),
        rows=tuple(Row(metric, latencies(truth, metric), latencies(simulated, metric)) for metric in ("ttft", "tpot")),
        others=others,
    )


def _why(results: Sequence[Result], policy: Policy) -> dict[int, str]:
    """By request: the limits it broke, or that it was not served; empty where it is good."""
    return {
        one.result.index: "" if one.good else "+".join(one.missed) or one.verdict.value
        for one in judge_all(results, policy)
    }
