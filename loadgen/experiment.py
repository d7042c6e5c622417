"""Everything that is decided before a run: which requests, when, and what counts as good."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from loadgen.arms.base import Observation
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.failure import LoadgenError
from loadgen.measure.cost import Price
from loadgen.measure.measures import MAX_SEND_LAG_MS, Measures, Setting, measure
from loadgen.schedule import Plan, Schedule, Sessions, build
from loadgen.slo.policy import Policy
from loadgen.slo.presets import AnyPolicy
from loadgen.slo.relative import ReferenceRun
from loadgen.workload.base import Workload
from loadgen.workload.storm import Storm

#: Factors of the SLO-scale sweep, applied to the results of one run; smaller is stricter.
SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True, slots=True)
class Experiment:
    """`salt` chooses the words of the prompts; lengths and times hang on `seed` alone."""

    workload: Workload
    arrivals: Arrivals
    policy: AnyPolicy = field(default_factory=Policy)
    seed: int = 0
    salt: int = 0
    count: int | None = None
    duration_s: float | None = None
    sessions: Sessions = Sessions.FIXED
    storms: tuple[Storm, ...] = ()
    price: Price | None = None
    max_send_lag_ms: float = MAX_SEND_LAG_MS

    def __post_init__(self) -> None:
        if isinstance(self.policy, Policy):
            for rule in self.policy.rules:
                for limit in rule.constraints:
                    if limit.limit_ms == 0:
                        raise LoadgenError(f"SLO: {limit} can never hold; limits are milliseconds above 0")

    def schedule(self, rate: float | None = None, repetition: int = 0) -> Schedule:
        """The same for every arm; another repetition draws other times and requests."""
        arrivals = self.arrivals if rate is None else _at_rate(self.arrivals, rate)
        return build(
            Plan(
                self.workload,
                arrivals,
                seed=self.seed + repetition,
                count=self.count,
                duration_s=self.duration_s,
                sessions=self.sessions,
                storms=self.storms,
            )
        )

    def words_salt(self, rate: float | None, repetition: int) -> int:
        """Other words for every run on one target, so that none meets the prefix cache of another."""
        text = f"{self.salt}/{self.seed}/{rate}/{repetition}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

    def judge(
        self, observation: Observation, schedule: Schedule, gpus: float, reference: ReferenceRun | None = None
    ) -> Measures:
        return measure(observation.results, self.setting(observation, schedule, gpus, reference))

    def setting(
        self, observation: Observation, schedule: Schedule, gpus: float, reference: ReferenceRun | None
    ) -> Setting:
        return Setting(
            policy=self.policy,
            window_s=schedule.window_s,
            gpus=gpus,
            price=self.price,
            max_send_lag_ms=self.max_send_lag_ms,
            reference=reference,
            complete=observation.complete,
            open_loop=schedule.arrivals.open_loop,
        )


def _at_rate(arrivals: Arrivals, rate: float) -> Arrivals:
    if arrivals.kind in (Kind.REPLAY, Kind.CLOSED):
        raise LoadgenError(f"arrivals: {arrivals.kind} has no rate to set; use time scale or concurrency")
    return replace(arrivals, rate=rate)


def attainment_of(measures: Measures) -> float:
    """What a search compares with its goal: the share of good requests, or all-or-nothing for run-level forms."""
    if measures.relative is not None:
        return 1.0 if all(c.held for c in measures.relative) else 0.0
    return measures.overall.attainment or 0.0


def scale_sweep(
    experiment: Experiment, observation: Observation, schedule: Schedule, scales: Sequence[float] = SCALES
) -> list[tuple[float, float]]:
    """Attainment at each SLO scale, all on the same results."""
    policy = experiment.policy
    if not isinstance(policy, Policy) or not policy.rules:
        return []
    swept = []
    for factor in scales:
        scaled = replace(experiment, policy=policy.scaled(factor))
        swept.append((factor, attainment_of(scaled.judge(observation, schedule, 1.0))))
    return swept
