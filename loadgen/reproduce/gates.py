"""Directions that the model must show. No published second is a gate: output lengths and caps are unknown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.demand import Demand
from loadgen.reproduce.batch import BatchRun, draw
from loadgen.reproduce.case import Case
from loadgen.reproduce.layout import engine_of
from loadgen.reproduce.pool import Runs
from loadgen.reproduce.studies import CAPS, M8, M32, M405, case

#: Near-linear: this share of the ideal speed-up.
LINEAR = 0.85
#: Below this share of the knee nothing may be computed twice (beyond `NOTHING`); above that multiple, `LARGE` must be.
BELOW, NOTHING = 0.6, 0.001
ABOVE, LARGE = 5.0, 0.3


@dataclass(frozen=True, slots=True)
class Gate:
    """`detail` has the numbers behind the verdict."""

    name: str
    passed: bool
    detail: str


def knee(kv_tokens: int, demands: Sequence[Demand]) -> float:
    """How many sequences fill the KV space on average.

    A sequence of prompt p and output o holds p + o/2 on average while it decodes, and long ones do so for longer: the
    mean over residence is (Σ p·o + o²/2) / Σ o.
    """
    prompts = np.array([d.prompt_tokens for d in demands], dtype=np.float64)
    outputs = np.array([d.output_tokens for d in demands], dtype=np.float64)
    return float(kv_tokens * outputs.sum() / (prompts * outputs + outputs * outputs / 2).sum())


def gates(runs: Runs, seed: int, share: float = 1.0, host_us: float = 0.0) -> list[Gate]:
    """Over the runs of `studies()`, at that share of their batches and time of the host."""
    found = _Found(runs, share, host_us)
    return [_dense(found), *_medium(found), _linear(found), *_preemption(found, seed)]


@dataclass(frozen=True, slots=True)
class _Found:
    runs: Runs
    share: float
    host_us: float

    def run(self, wanted: Case) -> BatchRun:
        run = self.runs[wanted.scaled(self.share, self.host_us)]
        if run is None:
            raise ValueError(f"{wanted.model} does not fit {wanted.layout}")
        return run

    def ratio(self, slower: Case, faster: Case) -> float:
        return self.run(slower).makespan_s / self.run(faster).makespan_s


def _dense(found: _Found) -> Gate:
    ratios = [found.ratio(case(M405, "PP8", scale=s), case(M405, "TP8", scale=s)) for s in (1.0, 0.3)]
    return Gate(
        "405B: TP8 is faster than PP8", min(ratios) > 1, f"PP8 takes {ratios[0]:.2f}x, short outputs {ratios[1]:.2f}x"
    )


def _medium(found: _Found) -> list[Gate]:
    base = case(M32, "DP8")
    made = []
    for layout in ("DP4×TP2", "DP2×TP4", "TP8"):
        ratio = found.ratio(base, case(M32, layout))
        made.append(Gate(f"32B, reasoning lengths: {layout} is faster than DP8", ratio > 1, f"DP8 takes {ratio:.2f}x"))
    return made


def _linear(found: _Found) -> Gate:
    speed_up = found.ratio(case(M8, "DP2", 10_000, 1024), case(M8, "DP8", 10_000, 1024))
    return Gate("8B: DP is near-linear from 2 to 8 GPUs", speed_up >= 4 * LINEAR, f"{speed_up:.2f}x of 4x")


def _preemption(found: _Found, seed: int) -> list[Gate]:
    at = {cap: case(M8, "1 GPU", 10_000, cap) for cap in CAPS}
    any_case = at[CAPS[0]].scaled(found.share)
    demands = draw(any_case.lengths.workload(), any_case.requests, seed)
    where = knee(engine_of(M8, any_case.layout).kv_tokens_total, demands)
    loss = {cap: found.run(run).recomputed_share for cap, run in at.items()}
    below = max(share for cap, share in loss.items() if cap <= BELOW * where)
    above = min(share for cap, share in loss.items() if cap >= ABOVE * where)
    return [
        Gate(
            "8B: no preemption loss below the KV knee",
            below <= NOTHING,
            f"knee at {where:.0f} sequences; at most {below:.2%} of tokens computed again up to {BELOW:g} of it",
        ),
        Gate(
            "8B: large preemption loss above the KV knee",
            above >= LARGE,
            f"at least {above:.0%} of tokens computed again from {ABOVE:g} times the knee on",
        ),
    ]
