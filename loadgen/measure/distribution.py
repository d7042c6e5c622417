"""Mean and percentiles of one latency."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.result import Floats


@dataclass(frozen=True, slots=True)
class Distribution:
    """Milliseconds (or whatever the values were). `count` 0 has no figures."""

    count: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> "Distribution":
        array = np.asarray(values, dtype=np.float64)
        if not array.size:
            return cls(0)
        p50, p90, p95, p99 = (float(v) for v in np.percentile(array, (50, 90, 95, 99)))
        low, high = float(array.min()), float(array.max())
        return cls(int(array.size), float(array.mean()), float(array.std()), low, p50, p90, p95, p99, high)

    @classmethod
    def weighed(cls, values: Floats, counts: NDArray[np.int64], total: float) -> "Distribution":
        """Of `counts` values each, in rising order; `total` is what they add up to."""
        count = int(counts.sum())
        if not count:
            return cls(0)
        ends = np.cumsum(counts)
        p50, p90, p95, p99 = (_percentile(values, ends, count, p) for p in (50, 90, 95, 99))
        mean = total / count
        std = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
        return cls(count, mean, std, float(values[0]), p50, p90, p95, p99, float(values[-1]))

    def as_dict(self) -> dict[str, float | int | None]:
        return asdict(self)


def _percentile(values: Floats, ends: NDArray[np.int64], count: int, percent: float) -> float:
    """As `np.percentile` of the values written out, each as often as it occurs."""
    rank = (count - 1) * percent / 100
    low = int(rank)
    below, above = values[np.searchsorted(ends, [low, min(low + 1, count - 1)], side="right")]
    return float(below + (above - below) * (rank - low))
