"""Successive halving over layouts: short simulations of all, long ones of the few that are left.

A layout is left behind only for a reason that is kept: its bound is below what another of its family reached, it fails
at a share of that, or a longer look found others better. Each family keeps its best to the end, so that the last word on
colocated against disaggregated is spoken on the longest runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeVar

from loadgen.bound import Bound, Remembered, bound_of
from loadgen.plan.candidate import HAND_OFF_FROM, Candidate, Family
from loadgen.plan.crew import Crew
from loadgen.plan.question import CLOSE, FINAL, HEAT, SCREEN, WIDE, Effort, Question
from loadgen.plan.trial import Report, Task, measure

Item = TypeVar("Item")

#: A layout that cannot reach this share of its family's best is left behind.
KEEP = 0.8
#: In the second look, with more seeds and longer runs, it must reach this one.
KEEP_AGAIN = 0.9
#: With a time budget, nothing new begins in a stage after this share of it is gone, so that later ones have their turn.
_SHARES = {"bounds": 0.25, "screening": 0.5, "second look": 0.7, "final": 0.9}
#: Nor one that cannot reach this share of the best of all: a family may be out of the question.
HOPELESS = 0.3
#: Where a hunt begins, as a share of the bound, until others have shown better.
_FIRST_SHARE = 0.4
#: The bound is looser than any layout can use: once so many have been measured, none is expected to come nearer to its own
#: than the nearest of them did to its, times a margin.
_MEASURED, _NEARER = 8, 1.25
#: The first step away from what a shorter look found.
_AGAIN_STEP = 1.06


class Stage(IntEnum):
    """How far a layout came."""

    UNTRIED = 0
    BOUND = 1  # its bound is below what others reached
    FLOOR = 2  # failed at a share of its family's best
    SCREEN = 3
    HEAT = 4
    FINAL = 5


@dataclass(slots=True)
class Standing:
    """`floor` is the rate at which it failed or that its bound stays below, for the stages that have no report.

    `bound` is what no policy beats. `served_ps` is the limit where every request is served, as here, good or not: with the
    goal below 1 the bound has the dearest requests turned away, which for short answers is most of what makes it loose. It is
    that of a stream without end: a run that is shorter than its longest answers may go above it.
    """

    candidate: Candidate
    bound: Bound
    served_ps: float
    stage: Stage = Stage.UNTRIED
    report: Report | None = None
    floor: float = 0.0

    def rate(self, goal: float) -> float:
        return self.report.rate(goal) if self.report is not None else 0.0


@dataclass(frozen=True, slots=True)
class Halving:
    """How many go on, and how hard each stage looks; the last two efforts are for what-ifs and margins."""

    heat: int = 12
    final: int = 3
    each_family: int = 2
    screen_effort: Effort = SCREEN
    heat_effort: Effort = HEAT
    final_effort: Effort = FINAL
    wide_effort: Effort = WIDE
    close_effort: Effort = CLOSE


#: Told of the name of a stage, how many of its layouts are done, and how many there are.
Watch = Callable[[str, int, int], None]


@dataclass(slots=True)
class Race:
    """`keep` is looked at to the end, however it does: the layout of today. `late`: time cut a stage short."""

    question: Question
    crew: Crew
    halving: Halving = field(default_factory=Halving)
    watch: Watch = lambda stage, done, total: None
    keep: Candidate | None = None
    standings: list[Standing] = field(default_factory=list)
    simulations: int = 0
    requests: int = 0
    late: bool = False

    @property
    def goal(self) -> float:
        """The one that ranks."""
        return min(self.question.goals)

    def run(self, candidates: Sequence[Candidate]) -> list[Standing]:
        self._bounds(candidates)
        self._screen()
        shape = self.halving
        self._again(self._chosen(shape.heat, shape.each_family + 1, (self.goal,)), Stage.HEAT, shape.heat_effort)
        finalists = self._chosen(shape.final, 1, self.question.goals)
        self._again(finalists, Stage.FINAL, shape.final_effort)
        return self.standings

    def _bounds(self, candidates: Sequence[Candidate]) -> None:
        """The gateway's threshold does not enter the bound, so layouts that differ in it alone share one. Families take
        turns: of a race that is cut short here, each has some that can be looked at."""
        alike: dict[Candidate, list[Candidate]] = {}
        for candidate in candidates:
            alike.setdefault(replace(candidate, local_below=HAND_OFF_FROM), []).append(candidate)
        in_turn = _in_turn([[one for one in alike if one.family is family] for family in Family])
        in_turn.sort(key=lambda one: self.keep not in alike[one])
        ask = ((self.question, candidate, self.goal) for candidate in in_turn)
        for done, ((_, candidate, _), found) in enumerate(self.crew.map(find_bounds, self._while_time("bounds", ask))):
            self.standings += [Standing(one, *found) for one in alike[candidate]]
            self.watch("bounds", done + 1, len(alike))

    def _screen(self) -> None:
        waiting = sorted(_interleaved(self.standings), key=lambda s: s.candidate != self.keep)
        best: dict[Family, float] = {}
        shares: list[float] = []
        served: list[float] = []
        standing_of = {s.candidate: s for s in waiting}

        def feed() -> Iterator[Task]:
            for standing in waiting:
                goal_to_beat = max(
                    KEEP * best.get(standing.candidate.family, 0.0), HOPELESS * max(best.values(), default=0.0)
                )
                task = self._first_look(standing, goal_to_beat, shares, served)
                if task is not None:
                    yield task

        for done, (task, report) in enumerate(self.crew.map(measure, self._while_time("screening", feed()))):
            standing = standing_of[task.candidate]
            self._count(report)
            if report.given_up:
                standing.stage, standing.floor = Stage.FLOOR, task.floor
            else:
                standing.stage, standing.report = Stage.SCREEN, report
                rate, family = report.rate(self.goal), task.candidate.family
                best[family] = max(best.get(family, 0.0), rate)
                if rate:
                    shares.append(rate / standing.bound.rate_per_s)
                    served.append(rate / standing.served_ps)
            self.watch("screening", done + 1, len(waiting))

    def _first_look(
        self, standing: Standing, floor: float, shares: Sequence[float], served: Sequence[float]
    ) -> Task | None:
        bound = standing.bound.rate_per_s
        if standing.candidate == self.keep:
            floor = 0.0
        if min(bound * _tightest(shares), standing.served_ps * max([1.0, *served])) <= floor or bound <= 0:
            standing.stage, standing.floor = Stage.BOUND, floor
            return None
        share = sorted(shares)[len(shares) // 2] if shares else _FIRST_SHARE
        start = floor * 1.15 if floor else bound * share
        effort = self.halving.screen_effort
        return Task(standing.candidate, self.question, effort, (self.goal,), min(start, bound), bound, floor)

    def _chosen(self, most: int, each_family: int, goals: Sequence[float]) -> list[Standing]:
        """The best by each goal, at most three of one shape, and the best of each family. Of the farthest stage only."""
        reached = max((s.stage for s in self.standings), default=Stage.UNTRIED)
        able = [s for s in self.standings if s.stage == reached and s.report is not None and s.rate(self.goal) > 0]
        chosen: dict[Candidate, Standing] = {}
        for goal in goals:
            order = sorted(able, key=lambda s: -s.rate(goal))
            shapes: Counter[str] = Counter()
            families: Counter[Family] = Counter()
            for place, standing in enumerate(order):
                candidate = standing.candidate
                shape, family = shape_of(candidate), candidate.family
                if (place < most and shapes[shape] < 3) or families[family] < each_family:
                    chosen[candidate] = standing
                shapes[shape] += 1
                families[family] += 1
        chosen.update((s.candidate, s) for s in able if s.candidate == self.keep)
        return list(chosen.values())

    def _again(self, chosen: Sequence[Standing], stage: Stage, effort: Effort) -> None:
        """The best first: a race cut short has then looked at those that matter, and the others have something to beat.
        Before them the one to keep, which the winner is held against."""
        standing_of = {s.candidate: s for s in chosen}
        name = {Stage.HEAT: "second look", Stage.FINAL: "final"}[stage]
        best: dict[Family, float] = {}

        def tasks() -> Iterator[Task]:
            for s in sorted(chosen, key=lambda s: (s.candidate != self.keep, -s.rate(self.goal))):
                floor = KEEP_AGAIN * best.get(s.candidate.family, 0.0)
                if stage is Stage.FINAL or s.candidate == self.keep:
                    floor = 0.0
                start, goals = s.rate(self.goal), self.question.goals
                yield Task(
                    s.candidate, self.question, effort, goals, start, s.bound.rate_per_s, floor, step=_AGAIN_STEP
                )

        for done, (task, report) in enumerate(self.crew.map(measure, self._while_time(name, tasks()))):
            standing, family = standing_of[task.candidate], task.candidate.family
            if not report.given_up:
                standing.stage, standing.report = stage, report
                best[family] = max(best.get(family, 0.0), report.rate(self.goal))
            self._count(report)
            self.watch(name, done + 1, len(chosen))

    def _while_time(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self.crew.spent >= _SHARES[stage]:
                self.late = True
                return
            yield item

    def _count(self, report: Report) -> None:
        self.simulations += report.simulations
        self.requests += report.requests


#: One a process.
_COLUMNS = Remembered()


def find_bound(ask: tuple[Question, Candidate, float]) -> Bound:
    question, candidate, goal = ask
    pools = candidate.bound_pools(question.changes)
    return bound_of(pools, question.sample, question.limits, attainment=goal, columns=_COLUMNS)


def find_bounds(ask: tuple[Question, Candidate, float]) -> tuple[Bound, float]:
    """And the rate, in requests/s, at which all the work that is offered can be done, however late."""
    question, candidate, _ = ask
    bound = find_bound(ask)
    if not bound.rate_per_s:
        return bound, 0.0
    return bound, bound_of(candidate.bound_pools(question.changes), question.sample, columns=_COLUMNS).rate_per_s


def _tightest(shares: Sequence[float]) -> float:
    """The largest share of its bound that a layout is expected to reach, as a factor on the bound."""
    return min(1.0, _NEARER * max(shares)) if len(shares) >= _MEASURED else 1.0


def shape_of(candidate: Candidate) -> str:
    """Pools and degrees without knobs."""
    return " ".join(f"{p.role.value}{p.workers}{p.engine.degrees}{p.engine.profile}" for p in candidate.parts)


def _interleaved(standings: Sequence[Standing]) -> list[Standing]:
    """The highest bound first, families in turn: so each soon has something to beat."""
    lanes = [
        sorted((s for s in standings if s.candidate.family is family), key=lambda s: -s.bound.rate_per_s)
        for family in Family
    ]
    return _in_turn(lanes)


def _in_turn(lanes: Sequence[Sequence[Item]]) -> list[Item]:
    longest = max(map(len, lanes), default=0)
    return [lane[i] for i in range(longest) for lane in lanes if i < len(lane)]
