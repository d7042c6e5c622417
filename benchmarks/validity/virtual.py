"""The side in virtual time, and what it fixes before anything else runs: the limits and the rates.

Two engines on one CPU slow each other down: virtual time stretches a step by what the table says (`sharing`) when a
neighbour computes as it begins. Nothing is fitted to a truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from benchmarks.comparison import latencies
from benchmarks.fidelity import alone
from loadgen.experiment import Experiment
from loadgen.measure.verdict import judge_all
from loadgen.result import Result
from loadgen.schedule import Schedule
from loadgen.simulate import simulate
from loadgen.simulate.layout import Layout
from loadgen.simulate.words import parse_layout
from loadgen.slo.constraint import Constraint
from loadgen.slo.policy import Policy, Rule

#: What the knee is: the highest rate at which this share of the requests is good.
GOAL = 0.9
_PRECISION = 1.02


@dataclass(frozen=True, slots=True)
class Virtual:
    """Layouts of engines with one profile. `overhead_ms`: as of `loadgen simulate`."""

    profile: str
    overhead_ms: float = 1.0

    def results(self, words: str, schedule: Schedule) -> tuple[Result, ...]:
        return simulate(self.layout(words), schedule).results

    def layout(self, words: str) -> Layout:
        """With the gateway's whole policy, as a live gateway has it."""
        return parse_layout(f"{words} --profile {self.profile} --overhead-ms {self.overhead_ms} --controlled")

    def attainment(self, words: str, schedule: Schedule, policy: Policy) -> float:
        judged = judge_all(self.results(words, schedule), policy)
        return sum(one.good for one in judged) / len(judged)

    def limits(self, words: str, schedule: Schedule, scale: float) -> Policy:
        """TTFT and TPOT limited to `scale` times what nine in ten requests stay within when each is alone."""
        served = self.results(words, alone(schedule, len(schedule.requests)))
        base = [(metric, latencies(served, metric).p90 or 0.0) for metric in ("ttft", "tpot")]
        return Policy((Rule(tuple(Constraint(metric, round(ms * scale, 1)) for metric, ms in base)),))

    def knee(self, words: str, experiment: Experiment, policy: Policy) -> float:
        """The rate, within 2 %, at which these very requests just keep the goal."""
        return boundary(lambda rate: self.attainment(words, experiment.schedule(rate), policy) >= GOAL)


def boundary(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """The highest rate that holds, by doubling or halving and then bisection."""
    low = start
    while not holds(low):
        low /= 2
        if low < start / 2**20:
            raise ValueError("no rate is low enough: the limits are below what a request alone takes")
    high = low * 2
    while holds(high) and high < start * 2**20:
        low, high = high, high * 2
    while high / low > _PRECISION:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
