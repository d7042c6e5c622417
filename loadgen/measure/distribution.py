"""Mean and percentiles of one latency."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

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

    def as_dict(self) -> dict[str, float | int | None]:
        return asdict(self)
