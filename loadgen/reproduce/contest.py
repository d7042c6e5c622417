"""One traffic on colocated layouts and on split ones: the highest rate of the best of each side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.question import Effort, Question
from loadgen.plan.race import find_bound
from loadgen.plan.trial import Task, measure
from loadgen.slo.policy import build_policy
from loadgen.workload.spec import Catalogue
from proto.worker import Role

GOAL = 0.9
EFFORT = Effort(seeds=2, judged=300, span=1.5, precision=0.03)
#: Token budgets of a step that are tried: beside decodes, and for prompts alone.
BESIDE, ALONE = (512, 1024, 2048, 8192), (2048, 8192)
#: Where a hunt begins, as a share of the bound.
_FIRST = 0.5


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


def held(contest: Contest) -> Contested:
    return Contested(contest, best_of(contest, contest.together), best_of(contest, contest.apart))


def best_of(contest: Contest, candidates: Sequence[Candidate], effort: Effort = EFFORT) -> Side:
    """Layouts that fail at the rate of the best before them cost one short run."""
    best = Side("", (), 0.0)
    for candidate in candidates:
        bound = find_bound((contest.question, candidate, GOAL)).rate_per_s
        gpus, floor = candidate.gpus, best.rate * candidate.gpus
        if bound <= floor:
            continue
        start = max(floor * 1.05, bound * _FIRST)
        report = measure(Task(candidate, contest.question, effort, (GOAL,), start, bound, floor))
        rate = report.rate(GOAL) / gpus
        if rate > best.rate:
            best = Side(candidate.label, tuple(r / gpus for r in report.rates(GOAL)), bound / gpus)
    return best
