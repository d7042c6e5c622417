"""One cell of the table: a model, a mix and its limits. Layouts are chosen on one seed and compared on others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from benchmarks.never_worse.arms import Arm, Kind, Work, fluid, static_colocated, static_splits
from benchmarks.never_worse.mixes import MIXES, SCREEN_SEED, Model
from benchmarks.never_worse.store import Store
from benchmarks.never_worse.trial import Aim, Hunt, Length
from loadgen.workload.base import Workload
from loadgen.workload.spec import Catalogue

#: Brackets of the screen and of the comparison, and how far they first step.
_COARSE, _FINE = 0.06, 0.02
_FAR, _NEAR = 1.5, 1.04
#: Another layout is only looked at where it holds this multiple of what the best so far holds.
_BETTER = 1.02
#: A static kind that the screen finds below this share of the other is not compared further.
_BEHIND = 0.93


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
        return max((Kind.COLOCATED, Kind.SPLIT), key=lambda kind: (kind not in self.screened, self.rate(kind)))

    def ratio(self, kind: Kind, to: Kind) -> float:
        return self.rate(kind) / self.rate(to) if self.rate(to) else 0.0


@dataclass(slots=True)
class Contest:
    """`version` of the policy, by which the store tells runs of fluid arms apart."""

    model: Model
    mix: str
    aim: Aim
    judged: int
    store: Store = field(default_factory=Store)
    version: str = ""
    said: Callable[[str], None] = lambda _: None
    workload: Workload = field(init=False)
    _length: Length = field(init=False)

    def __post_init__(self) -> None:
        self.workload = Catalogue().mix(MIXES[self.mix])
        self._length = Length.of(self.workload, self.aim, self.judged)

    def cell(self, seeds: Sequence[int]) -> Cell:
        chosen, found = self._chosen()
        static = max(found.get(Kind.COLOCATED, 0.0), found.get(Kind.SPLIT, 0.0))
        screened = {kind for kind in (Kind.COLOCATED, Kind.SPLIT) if found.get(kind, 0.0) < _BEHIND * static}
        rates: dict[Kind, tuple[float, ...]] = {kind: (found.get(kind, 0.0),) for kind in Kind}
        handed = False
        for kind in (Kind.COLOCATED, Kind.SPLIT, Kind.FLUID):
            if kind in chosen and kind not in screened:
                rates[kind], handed = self._compared(chosen[kind], found[kind], seeds)
        if Kind.FLUID in chosen:
            chosen[Kind.ROUTED], rates[Kind.ROUTED] = chosen[Kind.FLUID], rates[Kind.FLUID]
            if handed:  # else who may hand off did as who may not
                routed = fluid(self.model, self.aim, leans=False)
                first = self._first(routed, found[Kind.FLUID], found[Kind.FLUID] / 16)
                rates[Kind.ROUTED] = (0.0,)
                if first is not None:
                    chosen[Kind.ROUTED], rate = self._better(*first, routed)
                    rates[Kind.ROUTED], _ = self._compared(chosen[Kind.ROUTED], rate, seeds)
        names = {kind: arm.name for kind, arm in chosen.items()}
        return Cell(self.model.name, self.mix, self.aim, names, rates, frozenset(screened))

    def _chosen(self) -> tuple[dict[Kind, Arm], dict[Kind, float]]:
        """The best of each kind, and what it held in the screen."""
        work = Work.of(self.model, self.workload)
        start = max(map(work.start, self.model.degrees))
        chosen: dict[Kind, Arm] = {}
        found: dict[Kind, float] = {}
        for kind, arms in (
            (Kind.COLOCATED, static_colocated(self.model)),
            (Kind.SPLIT, static_splits(self.model, work)),
            (Kind.FLUID, fluid(self.model, self.aim)),
        ):
            static = max(found.values(), default=0.0)
            least = start / 64
            if kind is Kind.SPLIT and static:
                start = least = _BEHIND * static
            first = self._first([arm for arm in arms if arm.most > least], start, least)
            if first is None:
                continue
            arm, rate = self._better(*first, arms)
            arm, rate = self._better(arm, rate, [other() for other in arm.others])
            chosen[kind], found[kind], start = arm, rate, max(rate, static)
        return chosen, found

    def _first(self, arms: Sequence[Arm], rate: float, least: float) -> tuple[Arm, float] | None:
        """The first arm that holds the highest of the rates that are tried, none below `least`, and what it holds."""
        while rate >= least:
            for arm in arms:
                hunt = self._hunt(arm, SCREEN_SEED)
                if hunt.holds(rate):
                    return arm, self._coarsely(hunt, rate)
            rate /= _FAR
        return None

    def _better(self, best: Arm, rate: float, arms: Iterable[Arm]) -> tuple[Arm, float]:
        """The best of `arms` and of what was the best before. One that does not do better costs one run, or none."""
        for arm in arms:
            hunt = self._hunt(arm, SCREEN_SEED)
            if arm.name != best.name and arm.most > rate and hunt.holds(rate * _BETTER):
                best, rate = arm, self._coarsely(hunt, rate * _BETTER)
        return best, rate

    def _coarsely(self, hunt: Hunt, start: float) -> float:
        rate = hunt.highest(start, _NEAR, _COARSE)
        self.said(f"screen {hunt.name}: {rate:.3g}/s")
        return rate

    def _compared(self, arm: Arm, start: float, seeds: Sequence[int]) -> tuple[tuple[float, ...], bool]:
        """Its rates, and whether it ever handed anything over."""
        hunts = [self._hunt(arm, seed) for seed in seeds]
        rates = tuple(map(partial(self._finely, start=start), hunts))
        self.said(f"{arm.kind.value} {arm.name}: {', '.join(f'{rate:.3f}' for rate in rates)}/s")
        return rates, any(hunt.handed for hunt in hunts)

    def _finely(self, hunt: Hunt, start: float) -> float:
        return hunt.highest(start, _NEAR, _FINE)

    def _hunt(self, arm: Arm, seed: int) -> Hunt:
        policy = f" {self.version}" if arm.layout.roles is not None else ""
        name = f"{self.model.name} {self.mix} {arm.name}{policy}"
        return Hunt(arm.layout, self.workload, self.aim, self._length, seed, name, self.store)
