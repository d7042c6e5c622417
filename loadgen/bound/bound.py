"""An optimistic upper limit on the rate that a layout can serve (R-32): the fluid limit, with known lengths.

Requests are a fluid of decode tokens, context reads and prompt tokens. Engines mix any steps they like, in any
proportion, with no queues, no rounding, no waiting for each other, and always with the right requests at hand. What
still holds, holds in every real run too: each step takes what the cost table says; the KV read in a step fits the KV
space, what sequences share of it held once; batches keep to the engine's limits; KV moves no faster than the links; and
the mean step that a good request's tokens see is no longer than its TPOT limit. So no run on these tables beats the
bound, whatever the policies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from loadgen.bound.layout import Pool, Role
from loadgen.bound.simplex import Optimum, maximise
from loadgen.bound.steps import Columns, columns_of
from loadgen.bound.work import Limits, Work, work_of
from loadgen.demand import Demand
from loadgen.result import Floats

#: A step counts as full of KV from this share on: one cell of the grid below the end.
_FULL = 0.94


class Resource(StrEnum):
    """What binds. The two latencies: no step is short enough (rate 0), or only with fewer requests in it."""

    KV = "kv_capacity"
    SLOTS = "max_num_seqs"
    COMPUTE = "compute"
    BANDWIDTH = "hbm_bandwidth"
    COLLECTIVE = "collectives"
    LINK = "link"
    TTFT = "ttft_limit"
    TPOT = "tpot_limit"


@dataclass(frozen=True, slots=True)
class Bound:
    """`rate_per_s` is the highest *offered* rate of which the attainment asked for may be good; `pool` is the index
    of the pool that binds; `time_shares` are the parts of its engines' time in the best mix of steps."""

    rate_per_s: float
    resource: Resource
    pool: int
    time_shares: tuple[tuple[Resource, float], ...] = ()


def bound_of(
    pools: Sequence[Pool],
    demands: Sequence[Demand],
    limits: Limits | None = None,
    *,
    attainment: float = 1.0,
    columns: Callable[[Pool, Work], Columns] = columns_of,
) -> Bound:
    """`columns`: how the steps of a pool are found, for callers who remember them; the number of engines is not in them.

    Raises ValueError when nobody prefills or nobody decodes, or for an empty sample.
    """
    if not any(p.prefills for p in pools) or not any(p.decodes for p in pools):
        raise ValueError("a layout needs somebody who prefills and somebody who decodes")
    limits = limits or Limits()
    work = work_of(demands, attainment)
    hopeless = _hopeless(pools, demands, limits, attainment)
    if hopeless is not None:
        return Bound(0.0, hopeless, 0)
    program = _Program(pools, [columns(pool, work) for pool in pools], work, limits)
    return program.solve()


def _hopeless(pools: Sequence[Pool], demands: Sequence[Demand], limits: Limits, attainment: float) -> Resource | None:
    """Whether so many requests miss a limit even on an idle layout that the attainment is out of reach."""
    if limits.ttft_s is not None:
        limit, makers = limits.ttft_s, [p for p in pools if p.prefills]
        lengths = {d.prompt_tokens for d in demands}
        good = {n for n in lengths if min(_first_s(p, n) for p in makers) <= limit}
        if sum(d.prompt_tokens in good for d in demands) < attainment * len(demands):
            return Resource.TTFT
    if limits.tpot_s is not None:
        limit = limits.tpot_s
        fastest = [p.profile.cost for p in pools if p.decodes]
        served = sum(
            d.output_tokens < 2 or min(c.step_s(1, d.prompt_tokens + 1) for c in fastest) <= limit for d in demands
        )
        if served < attainment * len(demands):
            return Resource.TPOT
    return None


def _first_s(pool: Pool, prompt: int) -> float:
    """Time to the first token on an idle engine; beside a decode where the table makes that the shorter."""
    cost, budget = pool.profile.cost, pool.profile.max_num_batched_tokens
    chunks = [(min(budget, prompt - done), done) for done in range(0, prompt, budget)]
    return sum(min(cost.step_s(0, 0, [chunk]), cost.step_s(1, 1, [chunk])) for chunk in chunks)


class _Program:
    """Columns: the steps of each pool, then the rate. Rows: engine time of each pool, decode tokens, context reads,
    prompt tokens, the TPOT limit, the links."""

    def __init__(self, pools: Sequence[Pool], steps: Sequence[Columns], work: Work, limits: Limits) -> None:
        self._pools, self._steps, self._work = pools, steps, work
        self._sizes = [len(s) for s in steps]
        count = sum(self._sizes) + 1
        rows: list[Floats] = []
        for k, step in enumerate(steps):
            rows.append(self._row({k: step.seconds}, 0.0))
        rows.append(self._row({k: -s.decodes for k, s in enumerate(steps)}, work.decode_tokens))
        rows.append(self._row({k: -s.contexts for k, s in enumerate(steps)}, work.context_tokens))
        rows.append(self._row({k: -s.prompts for k, s in enumerate(steps)}, work.prompt_tokens))
        right = [*(float(p.engines) for p in pools), 0.0, 0.0, 0.0]
        self._tpot_row = self._link_row = -1
        if limits.tpot_s is not None:
            self._tpot_row = len(rows)
            rows.append(self._row({k: s.decodes * (s.seconds - limits.tpot_s) for k, s in enumerate(steps)}, 0.0))
            right.append(0.0)
        moved = {k: s.prompts for k, s in enumerate(steps) if pools[k].role is Role.PREFILL}
        lane = self._lane_tokens_per_s()
        if moved and np.isfinite(lane):
            self._link_row = len(rows)
            rows.append(self._row(moved, 0.0))
            right.append(lane)
        self._a, self._b = np.array(rows), np.array(right)
        self._c = np.zeros(count)
        self._c[-1] = 1.0

    def _row(self, entries: dict[int, Floats], rate: float) -> Floats:
        parts = [entries.get(k, np.zeros(size)) for k, size in enumerate(self._sizes)]
        return np.concatenate([*parts, [rate]])

    def _lane_tokens_per_s(self) -> float:
        """Prompt tokens a second that can leave the prefill pools and enter the others, whichever is less."""
        senders = [p for p in self._pools if p.role is Role.PREFILL]
        takers = [p for p in self._pools if p.decodes]
        if not senders:
            return float("inf")
        rates = [sum(p.link_bytes_per_s / p.profile.kv_bytes_per_token for p in side) for side in (senders, takers)]
        return min(rates)

    def solve(self) -> Bound:
        best = maximise(self._c, self._a, self._b)
        tight = int(np.argmax(best.prices[: len(self._pools)] * self._b[: len(self._pools)]))
        shares = self._time_shares(best, tight)
        return Bound(best.value, self._resource(best, shares), tight, tuple(shares.items()))

    def _resource(self, best: Optimum, shares: dict[Resource, float]) -> Resource:
        if self._link_row >= 0 and best.prices[self._link_row] * self._b[self._link_row] > 0.5 * best.value:
            return Resource.LINK
        if self._tpot_row >= 0 and best.prices[self._tpot_row] > 1e-9:
            return Resource.TPOT
        for resource in (Resource.KV, Resource.SLOTS):
            if shares[resource] > 0.5:
                return resource
        return max((Resource.COMPUTE, Resource.BANDWIDTH, Resource.COLLECTIVE), key=lambda r: shares[r])

    def _time_shares(self, best: Optimum, pool: int) -> dict[Resource, float]:
        """How the engines of a pool spend their time: by what bounds the kernels, and in steps that are full."""
        steps, profile = self._steps[pool], self._pools[pool].profile
        start = sum(self._sizes[:pool])
        weights = best.x[start : start + len(steps)] * steps.seconds
        shares = dict.fromkeys(
            (Resource.KV, Resource.SLOTS, Resource.COMPUTE, Resource.BANDWIDTH, Resource.COLLECTIVE), 0.0
        )
        total = float(weights.sum()) or 1.0
        for k in np.flatnonzero(weights > 1e-12):
            share = float(weights[k]) / total
            decodes, contexts, prompts = int(steps.decodes[k]), int(steps.contexts[k]), int(steps.prompts[k])
            parts = profile.cost.breakdown(decodes, contexts, [(prompts, 0)] if prompts else [])
            whole = parts.total_s or 1.0
            shares[Resource.COMPUTE] += share * (parts.compute_s + parts.overhead_s) / whole
            shares[Resource.BANDWIDTH] += share * parts.memory_s / whole
            shares[Resource.COLLECTIVE] += share * parts.collective_s / whole
            shares[Resource.KV] += share * (contexts >= _FULL * profile.kv_tokens_total)
            shares[Resource.SLOTS] += share * (decodes >= profile.max_num_seqs)
        return shares
