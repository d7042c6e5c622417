"""The side in virtual time, and what it fixes before anything else runs: the limits and the rates."""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path

from benchmarks.comparison import latencies
from benchmarks.fidelity import alone
from engine.simulated.cost.table import read_table, write_table
from loadgen.experiment import Experiment
from loadgen.measure.verdict import judge_all
from loadgen.result import Result
from loadgen.schedule import Schedule
from loadgen.simulate.layout import Layout
from loadgen.simulate.words import parse_layout
from loadgen.slo.constraint import Constraint
from loadgen.slo.policy import Policy, Rule

#: What the knee is: the highest rate at which this share of the requests is good.
GOAL = 0.9
_PRECISION = 1.02


def layout(words: str, profile: str) -> Layout:
    """With the gateway's whole policy, as a live gateway has it."""
    return parse_layout(f"{words} --profile {profile} --controlled")


def results(of: Layout, schedule: Schedule) -> tuple[Result, ...]:
    return of.simulate(schedule).results


def limits(of: Layout, schedule: Schedule, scale: float) -> Policy:
    """TTFT and TPOT limited to `scale` times what nine in ten requests stay within when each is alone."""
    served = results(of, alone(schedule, len(schedule.requests)))
    base = [(metric, latencies(served, metric).p90 or 0.0) for metric in ("ttft", "tpot")]
    return Policy((Rule(tuple(Constraint(metric, round(ms * scale, 1)) for metric, ms in base)),))


def attainment(of: Layout, schedule: Schedule, policy: Policy) -> float:
    judged = judge_all(results(of, schedule), policy)
    return sum(one.good for one in judged) / len(judged)


def knee(of: Layout, experiment: Experiment, policy: Policy) -> float:
    """The rate, within 2 %, at which these very requests just keep the goal."""
    return boundary(lambda rate: attainment(of, experiment.schedule(rate), policy) >= GOAL)


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


def without_neighbours(table: Path, folder: Path) -> Path:
    """The same table of engines that share no cores, which is what virtual time knows."""
    lonely = folder / "alone.json"
    write_table(replace(read_table(table), sharing={}), lonely)
    return lonely
