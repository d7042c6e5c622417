"""What is asked: the traffic, the limits on it, the goals, and how long a simulation must be to answer."""

from dataclasses import dataclass, field, replace

import numpy as np

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.bound import Limits
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import UNCHANGED, Candidate
from loadgen.plan.changes import Changes
from loadgen.schedule import Plan, Schedule, Sessions, build
from loadgen.simulate.layout import GPUS_PER_NODE, Layout
from loadgen.slo.policy import Policy
from loadgen.workload.base import Workload

#: Requests that stand for the traffic in the bound, and in what is said of lengths.
SAMPLE = 2000
#: Time of an answer's token where no limit says how long it may take; assumed.
_TOKEN_S = 0.05


@dataclass(frozen=True, slots=True)
class Effort:
    """How much one measurement of a highest rate costs.

    Times are in residences (how long a request may be in the house): requests sent in the first `lead` and the last
    `tail` meet a fleet that is filling up or running empty and are not judged; at least `judged` others are. Stages have
    seeds of their own, so that a layout is not flattered for the luck it was chosen by.
    """

    seeds: int
    judged: int
    span: float
    precision: float
    lead: float = 1.0
    tail: float = 0.5
    first_seed: int = 0

    @property
    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)


SCREEN = Effort(seeds=1, judged=250, span=1.0, precision=0.10, lead=0.8, tail=0.2)
HEAT = Effort(seeds=2, judged=500, span=1.5, precision=0.05, lead=0.8, tail=0.2, first_seed=100)
FINAL = Effort(seeds=4, judged=1000, span=2.0, precision=0.02, first_seed=200)
#: Differences of a few percent are looked for, on the same seeds.
CLOSE = Effort(seeds=3, judged=600, span=1.5, precision=0.01, first_seed=300)
#: A what-if may move the rate by far.
WIDE = Effort(seeds=2, judged=400, span=1.5, precision=0.03, first_seed=400)


@dataclass(frozen=True, slots=True)
class Question:
    """Pure data, so that it can go to another process. `arrivals` has the process and burstiness, not the rate.

    `sample` stands for the traffic; `residence_s` is how long a good request of mean length may take. Of `gpus_per_node` GPUs
    those that hand KV over do so by NVLink, all others by RDMA.
    """

    workload: Workload
    policy: Policy
    arrivals: Arrivals = field(default_factory=Arrivals)
    goals: tuple[float, ...] = (0.9, 0.99)
    seed: int = 0
    sessions: Sessions = Sessions.FIXED
    changes: Changes = UNCHANGED
    client_timeout_s: float = 600.0
    gpus_per_node: int = GPUS_PER_NODE
    sample: tuple[Demand, ...] = field(init=False, repr=False, compare=False)
    residence_s: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.policy.rules:
            raise LoadgenError("a plan needs an SLO: --goodput 'ttft:… tpot:…'")
        if self.arrivals.kind in (Kind.REPLAY, Kind.CLOSED):
            raise LoadgenError(f"a plan needs a rate to change; --arrivals {self.arrivals.kind} has none")
        if not self.goals or any(not 0 < goal <= 1 for goal in self.goals):
            raise LoadgenError("goals are shares of offered requests, such as 0.9,0.99")
        zero = [str(c) for rule in self.policy.rules for c in rule.constraints if c.limit_ms == 0]
        if zero:
            raise LoadgenError(f"SLO: {zero[0]} can never hold; limits are milliseconds above 0")
        chains = self.workload.draw(SAMPLE, np.random.default_rng(self.seed))
        object.__setattr__(self, "sample", tuple(demand for chain in chains for demand in chain)[:SAMPLE])
        object.__setattr__(self, "residence_s", self._residence_s())

    @property
    def gaps(self) -> bool:
        """Whether a limit is on those between tokens; else nobody asks for them."""
        return any(c.metric.startswith("itl") for rule in self.policy.rules for c in rule.constraints)

    def layout(self, candidate: Candidate) -> Layout:
        """As it is to be simulated."""
        return candidate.layout(self.changes, self.client_timeout_s, gaps=self.gaps, gpus_per_node=self.gpus_per_node)

    @property
    def limits(self) -> Limits:
        """What holds for every request: the loosest rule a metric has, none where some requests have none."""
        return Limits(self._loosest_s("ttft"), self._loosest_s("tpot"))

    def _loosest_s(self, metric: str) -> float | None:
        everyone = any(
            not rule.klass and not rule.bucket and any(c.metric == metric for c in rule.constraints)
            for rule in self.policy.rules
        )
        values = [c.limit_ms / 1e3 for r in self.policy.rules for c in r.constraints if c.metric == metric]
        return max(values) if everyone else None

    def _residence_s(self) -> float:
        tokens = float(np.mean([d.output_tokens for d in self.sample]))
        whole = self._loosest_s("e2el")
        by_parts = (self.limits.ttft_s or 1.0) + tokens * (self.limits.tpot_s or _TOKEN_S)
        return min(by_parts, whole) if whole else by_parts

    def schedule(self, rate: float, seed: int, effort: Effort) -> tuple[Schedule, tuple[float, float]]:
        """And the window of the judged: from, until. The same seed gives the same requests at every rate."""
        lead_s, tail_s = effort.lead * self.residence_s, effort.tail * self.residence_s
        span_s = max(effort.span * self.residence_s, effort.judged / rate)
        plan = Plan(
            self.workload,
            replace(self.arrivals, rate=rate),
            seed=self.seed + seed,
            duration_s=lead_s + span_s + tail_s,
            sessions=self.sessions,
        )
        return build(plan), (lead_s, lead_s + span_s)
