"""One arm at one rate, judged until it is decided; and the highest rate at which it keeps its promise. Model figures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

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
    """The highest rate that one layout holds with one seed. `name` says in the store which layout and traffic it is;
    `running` is told of each run as it begins."""

    layout: Layout
    question: Question
    aim: Aim
    length: Length
    seed: int
    name: str = ""
    store: Store = field(default_factory=Store)
    running: Callable[[str], None] = lambda _: None
    handed: bool = False

    def holds(self, rate: float) -> bool:
        """At a rate of four digits, which the store can name."""
        rate = float(f"{rate:.4g}")
        run = f"{self.name} {self.aim.limits} {self.length.words} {self.seed} {rate:g}"
        seen = self.store.find(run, lambda: self._measured(rate))
        self.handed |= seen.handed > 0
        return seen.held

    def _measured(self, rate: float) -> Seen:
        self.running(f"{self.name} at {rate:g}/s")
        schedule, window = self._schedule(rate)
        simulation = Simulation(self.layout, schedule)
        ran = run(simulation, self.question, window, GOAL)
        # paced sessions would not be judged; the schedules here have none
        return Seen(ran.bad is None, simulation.legs.handoffs)

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

    def _schedule(self, rate: float) -> tuple[Schedule, tuple[float, float]]:
        lead_s = self.length.lead_s
        until_s = lead_s + max(self.length.span_s, self.length.times * self.length.judged / rate)
        plan = Plan(
            self.question.workload,
            Arrivals(Kind.POISSON, rate=rate),
            self.seed,
            duration_s=until_s + self.length.tail_s,
        )
        return build(plan), (lead_s, until_s)
