"""One cell of the table: a model, a mix and its limits. On one seed two layouts of each kind are found, which others compare."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from benchmarks.never_worse.arms import Arm, Kind, Work, fluid, static_colocated, static_splits
from benchmarks.never_worse.mixes import MIXES, SCREEN_SEED, Model
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
#: And this much with the first of several seeds.
_HOPEFUL = 0.85


STATIC = (Kind.COLOCATED, Kind.SPLIT)


@dataclass(frozen=True, slots=True)
class Found:
    """What an arm held in the screen."""

    arm: Arm
    rate: float


@dataclass(frozen=True, slots=True)
class Final:
    """`rates`: one a seed. `handed`: whether anything was ever handed over."""

    name: str
    rates: tuple[float, ...]
    handed: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """`rates` of the best arm of each kind, one a seed. `screened` kinds have their rate from the screen alone."""

    model: str
    mix: str
    aim: Aim
    names: dict[Kind, str]
    rates: dict[Kind, tuple[float, ...]]
    screened: frozenset[Kind] = frozenset()

    def rate(self, kind: Kind) -> float:
        return fmean(self.rates[kind])

    @property
    def best(self) -> Kind:
        """Of the static ones."""
        return max(STATIC, key=lambda kind: (kind not in self.screened, self.rate(kind)))

    @property
    def seeds(self) -> int:
        return len(self.rates[self.best])

    def ratio(self, kind: Kind, to: Kind) -> float:
        return self.rate(kind) / self.rate(to) if self.rate(to) else 0.0


@dataclass(slots=True)
class Contest:
    """`version` of the policy, by which the store tells runs of fluid arms apart. `times`: how much longer runs are than usual.
    `said` is told what was found, `running` what is under way."""

    model: Model
    mix: str
    aim: Aim
    judged: int
    store: Store = field(default_factory=Store)
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
        found = self._screened()
        names = {kind: two[0].arm.name for kind, two in found.items()}
        rates: dict[Kind, tuple[float, ...]] = dict.fromkeys(Kind, (0.0,))
        rates |= {kind: (two[0].rate,) for kind, two in found.items()}
        static = max(rates[kind][0] for kind in STATIC)
        behind = frozenset(kind for kind in STATIC if rates[kind][0] < _BEHIND * static)
        for kind in (*STATIC, Kind.FLUID):
            if kind in found and kind not in behind:
                final = self._final(found[kind], seeds)
                names[kind], rates[kind] = final.name, final.rates
                if kind is Kind.FLUID:
                    routed = self._routed(final, found[kind][0].rate, seeds)
                    names[Kind.ROUTED], rates[Kind.ROUTED] = routed.name, routed.rates
        return Cell(self.model.name, self.mix, self.aim, names, rates, behind)

    def rates(self, arms: Sequence[Arm], seeds: Sequence[int]) -> list[tuple[float, ...]]:
        """Of these alone, one a seed: nothing is chosen."""
        work = Work.of(self.model, self.workload)
        start, found = max(map(work.start, self.model.degrees)), []
        for arm in arms:
            rates = []
            for seed in seeds:
                rates.append(self._finely(self._hunt(arm, seed), start))
                start = rates[-1] or start
            self.said(f"{arm.name}: {', '.join(f'{rate:.3f}' for rate in rates)}/s")
            found.append(tuple(rates))
        return found

    def _routed(self, fluids: Final, start: float, seeds: Sequence[int]) -> Final:
        """Who may hand off and never did is as who may not."""
        if not fluids.handed:
            return fluids
        two = self._two(fluid(self.model, self.aim, leans=False), start, start / 16)
        return self._final(two, seeds) if two else Final("", (0.0,), False)

    def _screened(self) -> dict[Kind, list[Found]]:
        """The best of each kind, and its runner-up where there is one."""
        work = Work.of(self.model, self.workload)
        start = max(map(work.start, self.model.degrees))
        least = start / 64
        found = {Kind.COLOCATED: self._two(static_colocated(self.model), start, least)}
        static = found[Kind.COLOCATED][0].rate if found[Kind.COLOCATED] else 0.0
        if static:
            start = least = _NEAR_COLOCATED * static
        found[Kind.SPLIT] = self._two(static_splits(self.model, work), start, least)
        start = max([static, *(one.rate for one in found[Kind.SPLIT])]) or start
        found[Kind.FLUID] = self._two(fluid(self.model, self.aim), start, start / 64)
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
        hunt = self._hunt(arm, SCREEN_SEED)
        if arm.most <= level or not hunt.holds(level):
            return None
        rate = hunt.highest(level, _NEAR, _COARSE)
        self.said(f"screen {hunt.name}: {rate:.3g}/s")
        return Found(arm, rate)

    def _final(self, found: Sequence[Found], seeds: Sequence[int]) -> Final:
        """The best. A runner-up that is no better with the only seed, or far behind with the first, is not run further."""
        finals: list[Final] = []
        least = 1 + _FINE / 2 if len(seeds) == 1 else _HOPEFUL
        for one in found:
            hunts = [self._hunt(one.arm, seed) for seed in seeds]
            if finals and not hunts[0].holds(finals[0].rates[0] * least):
                continue
            rates = tuple(map(partial(self._finely, start=one.rate), hunts))
            self.said(f"{one.arm.kind.value} {one.arm.name}: {', '.join(f'{rate:.3f}' for rate in rates)}/s")
            finals.append(Final(one.arm.name, rates, any(hunt.handed for hunt in hunts)))
        return max(finals, key=lambda final: fmean(final.rates))

    def _finely(self, hunt: Hunt, start: float) -> float:
        return hunt.highest(start, _NEAR, _FINE)

    def _hunt(self, arm: Arm, seed: int) -> Hunt:
        policy = f" {self.version}" if arm.layout.roles is not None else ""
        name = f"{self.model.name} {self.mix} {arm.name}{policy}"
        return Hunt(arm.layout, self._question, self.aim, self._length, seed, name, self.store, self.running)
