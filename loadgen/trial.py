"""One schedule on one arm, judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadgen.arms.base import Arm, Observation, Watch
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment, scale_sweep
from loadgen.measure.measures import Measures
from loadgen.schedule import Schedule
from loadgen.slo.policy import Policy
from loadgen.slo.relative import Basis, ReferenceRun


@dataclass(frozen=True, slots=True)
class Trial:
    """`rate` is None where the arrivals have none of their own (replay, closed loop)."""

    arm: str
    origin: str
    gpus: float
    rate: float | None
    repetition: int
    schedule: Schedule
    observation: Observation
    measures: Measures
    scales: tuple[tuple[float, float], ...]


async def run_trial(
    experiment: Experiment,
    arm: Arm,
    rate: float | None = None,
    repetition: int = 0,
    *,
    watch: Watch | None = None,
    reference: ReferenceRun | None = None,
) -> Trial:
    schedule = experiment.schedule(rate, repetition)
    observation = await arm.observe(schedule, experiment.words_salt(rate, repetition), watch)
    measures = experiment.judge(observation, schedule, arm.gpus, reference)
    scales = tuple(scale_sweep(experiment, observation, schedule))
    return Trial(arm.name, arm.origin, arm.gpus, rate, repetition, schedule, observation, measures, scales)


def keeps_requests(experiment: Experiment, rates: Sequence[float]) -> bool:
    """Whether the i-th request is the same one at all these rates, so that one reference run serves them all.

    Not where a duration decides how many there are, nor where turns or storms fall between other requests.
    """
    demands = [[p.demand for p in experiment.schedule(rate).requests] for rate in rates]
    return all(each == demands[0] for each in demands)


async def unloaded(
    experiment: Experiment, arm: Arm, rate: float | None, at_most: int, watch: Watch | None = None
) -> ReferenceRun:
    """The same requests one at a time: `at_most` of them, spread over the schedule."""
    schedule = experiment.schedule(rate)
    step = max(1, len(schedule.requests) // at_most)
    requests = tuple(replace(p, at_s=0.0, after=None) for p in schedule.requests[::step][:at_most])
    alone = Schedule(requests, 0.0, Arrivals(Kind.CLOSED, concurrency=1), schedule.seed)
    # words of their own: a prefix cache warmed here would flatter the run to come
    observation = await arm.observe(alone, experiment.words_salt(rate, -1), watch)
    return ReferenceRun.of(observation.results)


def needs_reference(experiment: Experiment) -> bool:
    return not isinstance(experiment.policy, Policy)


def wants_lowest_load(experiment: Experiment) -> bool:
    return not isinstance(experiment.policy, Policy) and experiment.policy.basis is Basis.LOWEST_LOAD
