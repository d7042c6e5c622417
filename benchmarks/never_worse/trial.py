"""One arm at one rate, judged until it is decided; and the highest rate at which it keeps its promise. Model figures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, sqrt

import numpy as np

from benchmarks.never_worse.store import Seen, Store
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.plan.decision import run
from loadgen.plan.question import Question
from loadgen.schedule import Plan, Schedule, build
from loadgen.simulate import Layout
from loadgen.simulate.simulation import Simulation
from loadgen.slo.constraint import Constraint
from loadgen.slo.policy import Policy, Rule
from loadgen.workload.base import Workload

#: Share of the offered requests that must be good.
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class Aim:
    """Limits of a good answer, in milliseconds."""

    name: str
    ttft_ms: float
    tpot_ms: float

    @property
    def limits(self) -> str:
        return f"{self.ttft_ms:g}/{self.tpot_ms:g}"

    @property
    def policy(self) -> Policy:
        return Policy((Rule((Constraint("ttft", self.ttft_ms), Constraint("tpot", self.tpot_ms))),))

    def question(self, workload: Workload) -> Question:
        return Question(workload, self.policy, goals=(GOAL,))


@dataclass(frozen=True, slots=True)
class Length:
    """How long a run is. Requests of the first `lead_s` meet an empty fleet and are not judged, nor are those of the last
    `tail_s`; `judged` are, at least, over `span_s` at least.
    `times`: how much longer the run is than it would be; as many more are judged."""

    lead_s: float
    span_s: float
    tail_s: float
    judged: int
    times: float = 1.0

    @property
    def words(self) -> str:
        """In the store."""
        return f"{self.judged}" if self.times == 1 else f"{self.judged}x{self.times:g}"

    @classmethod
    def of(cls, workload: Workload, aim: Aim, judged: int, times: float = 1.0) -> "Length":
        """In residences: how long a good answer of mean length may take."""
        chains = workload.draw(1000, np.random.default_rng(0))
        tokens = float(np.mean([demand.output_tokens for chain in chains for demand in chain]))
        residence_s = (aim.ttft_ms + tokens * aim.tpot_ms) / 1e3
        lead_s, span_s = max(6.0, 0.6 * residence_s), max(6.0, 0.4 * residence_s)
        return cls(times * lead_s, times * span_s, 0.2 * residence_s, judged, times)


@dataclass(slots=True)
class Hunt:
    """The highest rate that one layout holds: of the requests of all `seeds` together, that share is good. `name` says in the store
    which layout and traffic it is; `running` is told of each run as it begins. `held`: the highest rate that was seen to be held."""

    layout: Layout
    question: Question
    aim: Aim
    length: Length
    seeds: tuple[int, ...]
    name: str = ""
    store: Store = field(default_factory=Store)
    running: Callable[[str], None] = lambda _: None
    handed: bool = False
    held: float = 0.0

    def holds(self, rate: float) -> bool:
        """At a rate of four digits, which the store can name."""
        rate = float(f"{rate:.4g}")
        runs = [_Run(self, seed, rate) for seed in self.seeds]
        allowed = sum(one.judged for one in runs) * (1 - GOAL) + 1e-9
        for one in runs:
            seen = one.seen(allowed)
            self.handed |= seen.handed > 0
            allowed -= seen.bad
            if allowed < 0:
                return False
        self.held = max(self.held, rate)
        return True

    def good(self, rate: float) -> tuple[float, ...]:
        """Share of the requests of each seed that are good at that rate, whatever the goal."""
        rate = float(f"{rate:.4g}")
        seen = [_Run(self, seed, rate).seen(inf) for seed in self.seeds]
        return tuple(1 - one.bad / one.judged for one in seen)

    def highest(self, start: float, step: float, precision: float) -> float:
        """Between the rate that held and the one that did not, on a log scale. The first step away from `start` is by
        `step`, the next ones are larger."""
        low, high, rate = 0.0, 0.0, start
        while not low or not high:
            if self.holds(rate):
                low = rate
                rate *= step
            else:
                high = rate
                rate /= step
            step = min(2.0, step**1.5)
            if rate < start / 64:
                return 0.0
        while high / low > 1 + precision:
            rate = sqrt(low * high)
            low, high = (rate, high) if self.holds(rate) else (low, rate)
        return sqrt(low * high)

    def schedule(self, rate: float, seed: int) -> tuple[Schedule, tuple[float, float]]:
        """And when those that are judged are sent."""
        lead_s = self.length.lead_s
        until_s = lead_s + max(self.length.span_s, self.length.times * self.length.judged / rate)
        plan = Plan(
            self.question.workload,
            Arrivals(Kind.POISSON, rate=rate),
            seed,
            duration_s=until_s + self.length.tail_s,
        )
        return build(plan), (lead_s, until_s)


class _Run:
    """One seed at one rate. It is only run where the store does not know enough of it."""

    def __init__(self, hunt: Hunt, seed: int, rate: float) -> None:
        self._hunt, self._seed, self._rate = hunt, seed, rate
        self._words = f"{hunt.name} {hunt.aim.limits} {hunt.length.words} {seed} {rate:g}"
        self._known = hunt.store.find(self._words)

    @cached_property
    def _planned(self) -> tuple[Schedule, tuple[float, float]]:
        return self._hunt.schedule(self._rate, self._seed)

    @property
    def judged(self) -> int:
        if self._known is not None:
            return self._known.judged
        schedule, (begin_s, end_s) = self._planned
        return sum(begin_s <= one.at_s < end_s for one in schedule.requests)

    def seen(self, allowed: float) -> Seen:
        """Whole, unless more than `allowed` were bad."""
        known = self._known
        if known is not None and (not known.cut or known.bad > allowed):
            return known
        self._hunt.running(f"{self._hunt.name} at {self._rate:g}/s")
        schedule, window = self._planned
        simulation = Simulation(self._hunt.layout, schedule)
        ran = run(simulation, self._hunt.question, window, GOAL, allowed)
        # paced sessions would not be judged; the schedules here have none
        seen = self._known = Seen(ran.judged, ran.bad, ran.cut, simulation.legs.handoffs)
        self._hunt.store.keep(self._words, seen)
        return seen
