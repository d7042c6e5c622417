"""The plan of a run: every request with its absolute time, fixed by a seed before anything is sent."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from loadgen.arrivals.process import Arrivals, Kind, arrival_times
from loadgen.demand import Chain, Demand
from loadgen.failure import LoadgenError
from loadgen.workload.base import Workload
from loadgen.workload.storm import Storm


class Sessions(StrEnum):
    #: Every turn has an absolute time, whatever the answers do: the open-loop rule to the letter.
    FIXED = "fixed"
    #: A turn follows the end of the previous answer by its think time: turns react to the target.
    PACED = "paced"


@dataclass(frozen=True, slots=True)
class Planned:
    """`at_s` is the intended send. `after` is the index of the turn that must end first, in paced sessions."""

    index: int
    at_s: float
    demand: Demand
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """`window_s` is the time over which sends are planned. Closed loop: times are 0, order is what counts."""

    requests: tuple[Planned, ...]
    window_s: float
    arrivals: Arrivals
    seed: int

    @property
    def count(self) -> int:
        return len(self.requests)

    @property
    def digest(self) -> str:
        """Equal digests mean the same times, lengths, prefixes and labels."""
        h = hashlib.sha256()
        for p in self.requests:
            d = p.demand
            h.update(struct.pack("<Iqqq", p.index, round(p.at_s * 1e9), d.prompt_tokens, d.output_tokens))
            h.update(repr((d.prefix, d.tenant, d.klass, d.session, d.turn, d.text, p.after)).encode())
        return h.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Plan:
    """What `build` needs. `rate` in `arrivals` counts requests, so sessions start at rate / turns."""

    workload: Workload
    arrivals: Arrivals
    seed: int = 0
    count: int | None = None
    duration_s: float | None = None
    sessions: Sessions = Sessions.FIXED
    storms: tuple[Storm, ...] = ()


def build(plan: Plan) -> Schedule:
    """Independent streams of one seed for times, demands and storms, so a change of rate keeps the requests."""
    times_seed, demand_seed, storm_seed = np.random.SeedSequence(plan.seed).spawn(3)
    rng = np.random.default_rng(demand_seed)
    if plan.arrivals.kind is Kind.REPLAY:
        starts, chains = _replay(plan, rng)
    elif plan.arrivals.kind is Kind.CLOSED:
        if plan.count is None:
            raise LoadgenError("arrivals: a closed loop needs a number of requests")
        chains = plan.workload.draw(plan.count, rng)
        starts = [0.0] * len(chains)
    else:
        starts, chains = _process(plan, np.random.default_rng(times_seed), rng)
    if plan.storms:
        starts, chains = _with_storms(plan, starts, chains, np.random.default_rng(storm_seed))
    return _assemble(plan, starts, chains)


def _with_storms(
    plan: Plan, starts: Sequence[float], chains: Sequence[Chain], rng: np.random.Generator
) -> tuple[list[float], list[Chain]]:
    window = plan.duration_s or max(starts, default=0.0)
    all_starts, all_chains = list(starts), list(chains)
    for storm in plan.storms:
        times, extra = storm.draw(window, rng)
        all_starts += times
        all_chains += extra
    return all_starts, all_chains


def _process(plan: Plan, times: np.random.Generator, rng: np.random.Generator) -> tuple[list[float], Sequence[Chain]]:
    turns = plan.workload.mean_turns
    arrivals = replace(plan.arrivals, rate=plan.arrivals.rate / turns, ramp_from=plan.arrivals.ramp_from / turns)
    count = None if plan.count is None else max(1, round(plan.count / turns))
    starts = arrival_times(arrivals, times, count=count, duration_s=plan.duration_s)
    return starts, plan.workload.draw(len(starts), rng)


def _replay(plan: Plan, rng: np.random.Generator) -> tuple[list[float], Sequence[Chain]]:
    chains = plan.workload.draw(plan.count, rng)
    starts, kept = [], []
    for chain in chains:
        if chain[0].at_s is None:
            raise LoadgenError(f"arrivals: {plan.workload.name} carries no times of its own to replay")
        at = chain[0].at_s / plan.arrivals.time_scale
        if plan.duration_s is None or at < plan.duration_s:
            starts.append(at)
            kept.append(chain)
    origin = min(starts, default=0.0) if plan.duration_s is None else 0.0
    return [at - origin for at in starts], kept


def _assemble(plan: Plan, starts: Sequence[float], chains: Sequence[Chain]) -> Schedule:
    rows: list[tuple[float, int, int, Demand]] = []
    for number, (start, chain) in enumerate(zip(starts, chains, strict=True)):
        at = start
        for turn, demand in enumerate(chain):
            if turn:
                at = _turn_s(plan, start, at, chain[0], demand)
            rows.append((at, number, turn, demand))
    rows.sort(key=lambda row: row[:3])
    if not rows:
        raise LoadgenError("the schedule is empty: the workload has no request, or the duration is too short")
    index_of = {(number, turn): i for i, (_, number, turn, _) in enumerate(rows)}
    paced = plan.sessions is Sessions.PACED or plan.arrivals.kind is Kind.CLOSED
    requests = tuple(
        Planned(i, at, demand, index_of[number, turn - 1] if paced and turn else None)
        for i, (at, number, turn, demand) in enumerate(rows)
    )
    return Schedule(requests, _window(plan, rows[-1][0], len(rows)), plan.arrivals, plan.seed)


def _turn_s(plan: Plan, start: float, previous: float, first: Demand, demand: Demand) -> float:
    """A replay sends every turn when the trace has it; else, and where it has no time, think time and answer go by."""
    if plan.arrivals.kind is Kind.REPLAY and demand.at_s is not None and first.at_s is not None:
        return max(previous, start + (demand.at_s - first.at_s) / plan.arrivals.time_scale)
    return previous + demand.service_s + demand.think_s


def _window(plan: Plan, last_s: float, count: int) -> float:
    """A run limited by number ends one mean gap after its last send, so that count / window is the rate."""
    if plan.arrivals.kind is Kind.CLOSED:
        return 0.0
    if plan.duration_s is not None and plan.count is None:
        return max(plan.duration_s, last_s)
    return last_s * count / (count - 1) if count > 1 and last_s > 0 else max(last_s, 1 / plan.arrivals.rate)
