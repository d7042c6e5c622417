"""KV that nobody can use: free on one replica while another preempts or lets requests wait (R-49)."""

from collections.abc import Sequence

import numpy as np

from loadgen.reproduce.replica import ReplicaRun
from loadgen.result import Floats

_SAMPLES = 4000


def stranded_token_s(runs: Sequence[ReplicaRun]) -> tuple[float, ...]:
    """Free token-seconds of each replica while any *other* is short of room or slots.

    The states are sampled at equal distances over the makespan of the slowest. Where a replica itself is short, what
    it has free is too little for its next request, and still counted: another replica's request might fit it.
    """
    if len(runs) < 2:
        return (0.0,) * len(runs)
    end_s = max(run.makespan_s for run in runs)
    at_s = (np.arange(_SAMPLES) + 0.5) * end_s / _SAMPLES
    free = np.array([_free(run, at_s) for run in runs])
    short = np.array([_state(run, run.short, at_s) for run in runs])
    others = short.sum(axis=0) - short > 0
    return tuple(float(value) for value in (free * others).mean(axis=1) * end_s)


def _free(run: ReplicaRun, at_s: Floats) -> Floats:
    """Between two events free KV shrinks as answers grow; after the end all is free."""
    inside = np.interp(at_s, run.times_s, run.free_tokens) if run.requests else at_s * 0 + run.kv_tokens
    return np.where(at_s >= run.makespan_s, float(run.kv_tokens), inside)


def _state(run: ReplicaRun, state: Floats, at_s: Floats) -> Floats:
    if not run.requests:
        return at_s * 0
    index = np.searchsorted(run.times_s, at_s, side="right") - 1
    return np.where((index < 0) | (at_s >= run.makespan_s), 0.0, state[np.maximum(index, 0)])
