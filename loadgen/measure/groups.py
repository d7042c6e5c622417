"""Counts and latencies of a set of judged requests: the whole run, one class, one tenant, one length bucket."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.simulated.gaps import weighed
from loadgen.buckets import BUCKETS
from loadgen.measure.distribution import Distribution
from loadgen.measure.interval import Interval, share_over_time
from loadgen.measure.verdict import Judged, Verdict
from loadgen.result import Ending, Floats, Result
from loadgen.slo.relative import Reference


@dataclass(frozen=True, slots=True)
class Group:
    """`counts` has the five classes, adding up to `offered`; `abandoned` is a part of the timed-out.

    Latencies are in milliseconds and over completed requests only; the others are in `counts`.
    `slowdown` is E2E over the same request's unloaded E2E, when a reference run is at hand.
    """

    offered: int
    completed: int
    abandoned: int
    counts: dict[str, int]
    attainment: float | None
    attainment_95: Interval | None
    prompt_tokens: int
    output_tokens: int
    good_output_tokens: int
    latency_ms: dict[str, Distribution]
    slowdown: Distribution | None
    reasons: dict[str, int]


def group_of(judged: Sequence[Judged], reference: Reference | None = None) -> Group:
    counts = Counter(j.verdict for j in judged)
    results = [j.result for j in judged]
    completed = [r for r in results if r.completed]
    in_order = sorted(judged, key=lambda j: j.result.intended_s)
    return Group(
        offered=len(judged),
        completed=len(completed),
        abandoned=sum(r.ending is Ending.ABANDONED for r in results),
        counts={verdict.value: counts[verdict] for verdict in Verdict},
        attainment=counts[Verdict.GOOD] / len(judged) if judged else None,
        attainment_95=share_over_time([j.good for j in in_order]) if judged else None,
        prompt_tokens=sum(r.prompt_tokens or r.planned_prompt_tokens for r in completed),
        output_tokens=sum(r.output_tokens for r in completed),
        good_output_tokens=sum(j.result.output_tokens for j in judged if j.good),
        latency_ms=latencies(completed),
        slowdown=_slowdown(completed, reference),
        reasons=dict(Counter(r.reason for r in results if not r.completed).most_common()),
    )


def latencies(completed: Sequence[Result]) -> dict[str, Distribution]:
    """Of completed requests, in milliseconds."""
    return {
        "ttft": _milli(r.ttft_s for r in completed),
        "tpot": _milli(r.tpot_s for r in completed),
        **_between_tokens(completed),
        "e2el": _milli(r.e2e_s for r in completed),
    }


def split(judged: Iterable[Judged], key: Callable[[Result], str]) -> dict[str, list[Judged]]:
    """By a label of the result; length buckets come in their order, other labels sorted."""
    parts: dict[str, list[Judged]] = {}
    for item in judged:
        parts.setdefault(key(item.result), []).append(item)
    order = {bucket: i for i, bucket in enumerate(BUCKETS)}
    return dict(sorted(parts.items(), key=lambda kv: (order.get(kv[0], -1), kv[0])))


def _milli(seconds: Iterable[float | None]) -> Distribution:
    return Distribution.of([s * 1e3 for s in seconds if s is not None])


def _between_tokens(completed: Sequence[Result]) -> dict[str, Distribution]:
    counted = [r.gaps for r in completed if r.gaps is not None]
    if not counted:
        return {"itl": _gaps(completed, Result.token_gaps_s), "itl_chunk": _gaps(completed, Result.chunk_gaps_s)}
    (lengths_s, counts), total_s = weighed(counted)  # too many to be written out
    simulated = Distribution.weighed(lengths_s * 1e3, counts, total_s * 1e3)
    return {"itl": simulated, "itl_chunk": simulated}


def _gaps(completed: Sequence[Result], gaps: Callable[[Result], Floats]) -> Distribution:
    parts = [gaps(r) for r in completed]
    return Distribution.of(np.concatenate(parts) * 1e3 if parts else np.empty(0))


def _slowdown(completed: Sequence[Result], reference: Reference | None) -> Distribution | None:
    if reference is None:
        return None
    ratios = []
    for result in completed:
        base = reference.unloaded_ms("e2el", result)
        if base:
            ratios.append(result.e2e_s * 1e3 / base)
    return Distribution.of(ratios)
