"""One traffic on colocated layouts and on split ones: the highest rate of the best of each side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.question import Effort, Question
from loadgen.plan.race import find_bound
from loadgen.plan.trial import Report, Task, measure
from loadgen.slo.policy import build_policy
from loadgen.workload.spec import Catalogue
from proto.worker import Role

GOAL = 0.9
EFFORT = Effort(seeds=2, judged=600, span=1.5, precision=0.03, lead=0.8, tail=0.2, first_seed=100)
#: Finds the best of a side, on a seed of its own; alone it is the quick look.
LOOK = Effort(seeds=1, judged=150, span=1.0, precision=0.06, lead=0.8, tail=0.2)
#: Token budgets of a step that are tried: beside decodes, and for prompts alone.
BESIDE, ALONE = (512, 1024, 2048, 8192), (2048, 8192)
#: Where a hunt begins, as a share of the bound.
_FIRST = 0.5
#: The first step away from what the short look found.
_NEAR = 1.05


def colocated(profile: str, workers: int, tp: int = 1, budgets: Sequence[int] = BESIDE) -> tuple[Candidate, ...]:
    return tuple(Candidate((Part(Role.BOTH, workers, Engine(profile, tp, tokens=tokens)),)) for tokens in budgets)


def split(
    profile: str, prefill: tuple[int, int], decode: tuple[int, int], budgets: Sequence[int] = ALONE
) -> tuple[Candidate, ...]:
    """Workers and TP degree of each pool. Nothing is computed on the decode workers: these are splits as published."""
    return tuple(
        Candidate(
            (
                Part(Role.PREFILL, prefill[0], Engine(profile, prefill[1], tokens=tokens)),
                Part(Role.DECODE, decode[0], Engine(profile, decode[1], tokens=2048)),
            ),
            local_below=0,
        )
        for tokens in budgets
    )


@dataclass(frozen=True)
class Contest:
    """`published`: the split side's rate over the colocated one's; None where only a direction is."""

    name: str
    workload: str
    goodput: str
    together: tuple[Candidate, ...]
    apart: tuple[Candidate, ...]
    published: float | None = None

    @cached_property
    def question(self) -> Question:
        return Question(Catalogue().mix([self.workload]), build_policy([self.goodput]), goals=(GOAL,))


@dataclass(frozen=True, slots=True)
class Side:
    """Requests/s per GPU at 90 % attainment, seed by seed; `bound` of the same layout. `label` "" where none holds it."""

    label: str
    rates: tuple[float, ...]
    bound: float

    @property
    def rate(self) -> float:
        return sum(self.rates) / len(self.rates) if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class Contested:
    contest: Contest
    together: Side
    apart: Side

    @property
    def ratio(self) -> float | None:
        return self.apart.rate / self.together.rate if self.together.rate else None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Seed by seed."""
        return tuple(a / b for a, b in zip(self.apart.rates, self.together.rates, strict=False) if b)

    @property
    def bound_ratio(self) -> float | None:
        return self.apart.bound / self.together.bound if self.together.bound else None


def held(contest: Contest, effort: Effort = EFFORT) -> Contested:
    return Contested(contest, best_of(contest, contest.together, effort), best_of(contest, contest.apart, effort))


def best_of(contest: Contest, candidates: Sequence[Candidate], effort: Effort = EFFORT, look: Effort = LOOK) -> Side:
    """One short look at each, which for those that fail at the rate of the best before them is one run; then the best one
    with the effort asked for."""
    best: tuple[Candidate, Report] | None = None
    for candidate in candidates:
        floor = 0.0 if best is None else best[1].rate(GOAL) / best[0].gpus * candidate.gpus
        bound = find_bound((contest.question, candidate, GOAL)).rate_per_s
        if bound <= floor:
            continue
        start = max(floor * 1.05, bound * _FIRST)
        report = measure(Task(candidate, contest.question, look, (GOAL,), start, bound, floor))
        if report.rate(GOAL) > floor:
            best = candidate, report
    if best is None:
        return Side("", (), 0.0)
    chosen, report = best
    if effort != look:
        start = report.rate(GOAL)
        report = measure(Task(chosen, contest.question, effort, (GOAL,), start, report.task.ceiling, step=_NEAR))
    rates = tuple(rate / chosen.gpus for rate in report.rates(GOAL))
    return Side(chosen.label, rates, report.task.ceiling / chosen.gpus)
