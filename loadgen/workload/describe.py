"""The distributions of a workload, in the figures a benchmark has to publish."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.buckets import BUCKETS, bucket_of
from loadgen.demand import Demand
from loadgen.result import Floats
from loadgen.workload.fit import shared_blocks, spearman


@dataclass(frozen=True, slots=True)
class Lengths:
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> "Lengths":
        array = np.asarray(values, dtype=np.float64)
        p50, p90, p95, p99 = (float(v) for v in np.percentile(array, (50, 90, 95, 99)))
        return cls(float(array.mean()), p50, p90, p95, p99, float(array.max()))


@dataclass(frozen=True, slots=True)
class Description:
    """Of a list of requests. Arrival figures are None where they carry no times."""

    requests: int
    sessions: int
    input_tokens: Lengths
    output_tokens: Lengths
    rank_correlation: float | None
    outputs_by_bucket: dict[str, float]
    shared_block_share: float | None
    rate: float | None
    gap_cv: float | None
    peak_per_second: int | None
    by_class: dict[str, int]
    by_tenant: dict[str, int]


def describe(rows: Sequence[Demand], times: Sequence[float] | None = None) -> Description:
    """`times` are the scheduled arrivals; without them the trace's own."""
    inputs = np.asarray([d.prompt_tokens for d in rows], dtype=np.float64)
    outputs = np.asarray([d.output_tokens for d in rows], dtype=np.float64)
    buckets = Counter(bucket_of(d.output_tokens) for d in rows)
    blocks = sum(len(d.prefix) for d in rows)
    own = [d.at_s for d in rows if d.at_s is not None]
    rate, cv, peak = _arrivals(np.sort(np.asarray(times if times is not None else own, dtype=np.float64)))
    return Description(
        requests=len(rows),
        sessions=len({d.session for d in rows if d.session}),
        input_tokens=Lengths.of(inputs),
        output_tokens=Lengths.of(outputs),
        rank_correlation=spearman(inputs, outputs) if len(rows) > 2 else None,
        outputs_by_bucket={b: buckets[b] / len(rows) for b in BUCKETS},
        shared_block_share=sum(shared_blocks(rows)) / blocks if blocks else None,
        rate=rate,
        gap_cv=cv,
        peak_per_second=peak,
        by_class=dict(sorted(Counter(d.klass for d in rows).items())),
        by_tenant=dict(sorted(Counter(d.tenant for d in rows).items())),
    )


def _arrivals(times: Floats) -> tuple[float | None, float | None, int | None]:
    if times.size < 3 or times[-1] <= times[0]:
        return None, None, None
    gaps = np.diff(times)
    per_second = np.bincount((times - times[0]).astype(np.int64))
    return float((times.size - 1) / (times[-1] - times[0])), float(gaps.std() / gaps.mean()), int(per_second.max())
