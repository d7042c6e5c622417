"""One cell of the table: a model, a mix and its limits. On one seed two layouts of each kind are found, which others compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.never_worse.arms import Arm, Kind, Work, fluid, named, short, static_colocated, static_splits
from benchmarks.never_worse.mixes import MIXES, SCREEN_SEED, Case, Model
from benchmarks.never_worse.screens import Screens
from benchmarks.never_worse.store import Store
from benchmarks.never_worse.trial import Aim, Hunt, Length
from loadgen.plan.question import Question
from loadgen.workload.base import Workload
from loadgen.workload.spec import Catalogue

#: Brackets of the screen and of the comparison, and how far they first step.
_COARSE, _FINE = 0.06, 0.02
_FAR, _NEAR = 1.5, 1.04
#: Another layout is only looked at where it holds this multiple of what the best so far holds.
_BETTER = 1.02
#: A split must hold this share of what colocated workers hold in the screen.
_NEAR_COLOCATED = 0.93
#: Colocated workers that the screen finds below this share of a split are not compared further.
_BEHIND = 0.85
#: Of what the best of its kind holds in the screen, the runner-up must hold this much.
_NEARLY = 0.8


STATIC = (Kind.COLOCATED, Kind.SPLIT)


@dataclass(frozen=True, slots=True)
class Found:
    """What an arm held in the screen."""

    arm: Arm
    rate: float


@dataclass(frozen=True, slots=True)
class Final:
    """The better of two, over all seeds together."""

    name: str
    rate: float
    hunt: Hunt


@dataclass(frozen=True, slots=True)
class Cell:
    """`rates` of the best arm of each kind. `screened` kinds have their rate from the screen alone. `points`: by how many points
    of attainment fluid is ahead at the highest rate that the best static layout holds, for each seed."""

    model: str
    mix: str
    aim: Aim
    seeds: int
    names: dict[Kind, str]
    rates: dict[Kind, float]
    screened: frozenset[Kind] = frozenset()
    points: tuple[float, ...] = ()

    @property
    def best(self) -> Kind:
        """Of the static ones."""
        return max(STATIC, key=lambda kind: (kind not in self.screened, self.rates[kind]))

    def ratio(self, kind: Kind, to: Kind) -> float:
        return self.rates[kind] / self.rates[to] if self.rates[to] else 0.0


@dataclass(slots=True)
class Contest:
    """`version` of the policy, by which the store tells runs of fluid arms apart. `times`: how much longer runs are than usual.
    `screens` knows which layouts were found before; what is found now it is told.
    `said` is told what was found, `running` what is under way."""

    model: Model
    mix: str
    aim: Aim
    judged: int
    store: Store = field(default_factory=Store)
    screens: Screens = field(default_factory=Screens)
    version: str = ""
    said: Callable[[str], None] = lambda _: None
    running: Callable[[str], None] = lambda _: None
    times: float = 1.0
    workload: Workload = field(init=False)
    _question: Question = field(init=False)
    _length: Length = field(init=False)

    def __post_init__(self) -> None:
        self.workload = Catalogue().mix(MIXES[self.mix])
        self._question = self.aim.question(self.workload)
        self._length = Length.of(self.workload, self.aim, self.judged, self.times)

    def cell(self, seeds: Sequence[int]) -> Cell:
        seeds, found = tuple(seeds), self._found_before() or self._screened()
        names = {kind: two[0].arm.name for kind, two in found.items()}
        rates = dict.fromkeys(Kind, 0.0) | {kind: two[0].rate for kind, two in found.items()}
        static = max(rates[kind] for kind in STATIC)
        behind = frozenset(kind for kind in STATIC if rates[kind] < _BEHIND * static)
        finals: dict[Kind, Final] = {}
        for kind in (*STATIC, Kind.FLUID):
            if kind in found and kind not in behind:
                finals[kind] = self._final(found[kind], seeds)
        if Kind.FLUID in finals:
            finals[Kind.ROUTED] = self._routed(finals[Kind.FLUID], seeds)
        names |= {kind: final.name for kind, final in finals.items()}
        rates |= {kind: final.rate for kind, final in finals.items()}
        cell = Cell(self.model.name, self.mix, self.aim, len(seeds), names, rates, behind)
        return replace(cell, points=self._points(finals, cell.best))

    def rates(self, arms: Sequence[Arm], seeds: Sequence[int]) -> list[float]:
        """Of these alone: nothing is chosen."""
        start, found = Work.of(self.model, self.workload).start, []
        for arm in arms:
            found.append(self._finely(self._hunt(arm, tuple(seeds)), start))
            start = found[-1] or start
            self.said(f"{arm.name}: {found[-1]:.3f}/s")
        return found

    def _points(self, finals: Mapping[Kind, Final], best: Kind) -> tuple[float, ...]:
        if best not in finals or Kind.FLUID not in finals or not (rate := finals[best].hunt.held):
            return ()
        static, fluids = finals[best].hunt.good(rate), finals[Kind.FLUID].hunt.good(rate)
        return tuple(100 * (ours - theirs) for ours, theirs in zip(fluids, static, strict=True))

    def _routed(self, fluids: Final, seeds: tuple[int, ...]) -> Final:
        """Who may hand off and never did is as who may not."""
        if not fluids.hunt.handed:
            return fluids
        start = fluids.rate or Work.of(self.model, self.workload).start
        two = self._two(fluid(self.model, self.aim, leans=False), start, start / 16)
        return self._final(two, seeds) if two else replace(fluids, name="", rate=0.0)

    def _found_before(self) -> dict[Kind, list[Found]]:
        found: dict[Kind, list[Found]] = {}
        for name, rate in self.screens.of(self._case):
            arm = named(self.model, self.aim, name)
            if arm is None:
                raise ValueError(f"{self._case}: there is no layout {name!r}")
            found.setdefault(arm.kind, []).append(Found(arm, rate))
        return found

    @property
    def _case(self) -> str:
        return str(Case(self.model, self.mix, self.aim))

    def _screened(self) -> dict[Kind, list[Found]]:
        """The best of each kind, and its runner-up where there is one."""
        work = Work.of(self.model, self.workload)
        start, least = work.start, work.start / 64
        found = {Kind.COLOCATED: self._two(static_colocated(self.model), start, least)}
        static = found[Kind.COLOCATED][0].rate if found[Kind.COLOCATED] else 0.0
        if static:
            start = least = _NEAR_COLOCATED * static
        found[Kind.SPLIT] = self._two(static_splits(self.model, work), start, least)
        start = max([static, *(one.rate for one in found[Kind.SPLIT])]) or start
        found[Kind.FLUID] = self._two(fluid(self.model, self.aim), start, start / 64)
        self.screens.keep(self._case, {short(one.arm.name): one.rate for two in found.values() for one in two})
        return {kind: two for kind, two in found.items() if two}

    def _two(self, arms: Sequence[Arm], start: float, least: float) -> list[Found]:
        """The best with its best budget, and the best of another sort."""
        arms = [arm for arm in arms if arm.most > least]
        first = self._first(arms, start, least)
        if first is None:
            return []
        best = self._better(first, (arm for arm in arms if arm.name != first.arm.name))
        best = self._better(best, [other() for other in best.arm.others])
        second: Found | None = None
        level = max(least, _NEARLY * best.rate)
        for arm in arms:
            if arm.sort != best.arm.sort:
                second = self._found(arm, level) or second
                level = max(level, second.rate * _BETTER) if second else level
        return [best, second] if second else [best]

    def _first(self, arms: Sequence[Arm], rate: float, least: float) -> Found | None:
        """The first arm that holds the highest of the rates that are tried, none below `least`."""
        while rate >= least:
            for arm in arms:
                if found := self._found(arm, rate):
                    return found
            rate /= _FAR
        return None

    def _better(self, best: Found, arms: Iterable[Arm]) -> Found:
        """The best of `arms` and of what was the best before."""
        for arm in arms:
            best = self._found(arm, best.rate * _BETTER) or best
        return best

    def _found(self, arm: Arm, level: float) -> Found | None:
        """None if it does not hold `level`, which costs one run, or none."""
        hunt = self._hunt(arm, (SCREEN_SEED,))
        if arm.most <= level or not hunt.holds(level):
            return None
        rate = hunt.highest(level, _NEAR, _COARSE)
        self.said(f"screen {hunt.name}: {rate:.3g}/s")
        return Found(arm, rate)

    def _final(self, found: Sequence[Found], seeds: tuple[int, ...]) -> Final:
        """The best. A runner-up that is no better than the first is not run further."""
        best: Final | None = None
        for one in found:
            hunt, start = self._hunt(one.arm, seeds), one.rate
            if best is not None and best.rate:
                start = best.rate * (1 + _FINE / 2)
                if not hunt.holds(start):
                    continue
            rate = self._finely(hunt, start)
            self.said(f"{one.arm.kind.value} {one.arm.name}: {rate:.3f}/s")
            if best is None or rate > best.rate:
                best = Final(one.arm.name, rate, hunt)
        assert best is not None, "somebody was found"
        return best

    def _finely(self, hunt: Hunt, start: float) -> float:
        return hunt.highest(start, _NEAR, _FINE)

    def _hunt(self, arm: Arm, seeds: tuple[int, ...]) -> Hunt:
        policy = f" {self.version}" if arm.layout.roles is not None else ""
        name = f"{self.model.name} {self.mix} {arm.name}{policy}"
        return Hunt(arm.layout, self._question, self.aim, self._length, seeds, name, self.store, self.running)
