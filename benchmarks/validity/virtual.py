"""The side in virtual time, and what it fixes before anything else runs: the limits and the rates.

Virtual time knows no neighbours, but two engines on one CPU slow each other down, by as much as the table says
(`sharing`). So a layout of several is simulated twice: once to see how much of the time each computes, and once more
with steps that are longer by the slowdown for that share of the time. Nothing is fitted to a truth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean

from benchmarks.comparison import latencies
from benchmarks.fidelity import alone
from engine.simulated.cost.table import read_table, write_table
from loadgen.experiment import Experiment
from loadgen.measure.verdict import judge_all
from loadgen.recalibrate.factors import Factors, scaled
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
_FILE = "file:"


@dataclass(frozen=True, slots=True)
class Virtual:
    """Layouts of engines with one profile. `folder` is for tables of engines that have neighbours."""

    profile: str
    folder: Path

    def results(self, words: str, schedule: Schedule) -> tuple[Result, ...]:
        outcome = simulate(layout(words, self.profile), schedule)
        factors = slowdown(self._sharing(), [worker.busy for worker in outcome.workers])
        if factors == Factors():
            return outcome.results
        return simulate(layout(words, self._stretched(factors)), schedule).results

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

    def _sharing(self) -> Mapping[str, float]:
        """Tables that are built in are of GPUs, which share no cores."""
        return read_table(self._table).sharing if self.profile.startswith(_FILE) else {}

    @property
    def _table(self) -> Path:
        return Path(self.profile.removeprefix(_FILE))

    def _stretched(self, factors: Factors) -> str:
        path = self.folder / f"{factors.prefill!r}-{factors.decode!r}.json"
        write_table(scaled(read_table(self._table), factors), path)
        return f"{_FILE}{path}"


def layout(words: str, profile: str) -> Layout:
    """With the gateway's whole policy, as a live gateway has it."""
    return parse_layout(f"{words} --profile {profile} --controlled")


def slowdown(sharing: Mapping[str, float], busy: Sequence[float]) -> Factors:
    """What an engine's steps take longer on average; `busy`: the share of the time in which each engine computes."""
    beside = (len(busy) - 1) * fmean(busy)
    return Factors(
        prefill=1 + (sharing.get("prefill", 1.0) - 1) * beside, decode=1 + (sharing.get("decode", 1.0) - 1) * beside
    )


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
