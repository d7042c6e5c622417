"""A distribution of token counts as a table of its percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.result import Floats

#: Fine where tails are: 0 to 99 by 1, then by 0.1, then 99.95 and the maximum.
GRID: tuple[float, ...] = (*range(100), *(99 + i / 10 for i in range(1, 10)), 99.95, 100)


@dataclass(frozen=True, slots=True)
class QuantileTable:
    percentiles: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.percentiles) != len(self.values) or len(self.values) < 2:
            raise ValueError("a quantile table needs as many values as percentiles, and at least two")
        if list(self.percentiles) != sorted(self.percentiles) or list(self.values) != sorted(self.values):
            raise ValueError("a quantile table must not fall")
        if self.percentiles[0] != 0 or self.percentiles[-1] != 100:
            raise ValueError("a quantile table spans 0 to 100")

    @classmethod
    def fit(cls, values: Sequence[float] | Floats, grid: Sequence[float] = GRID) -> "QuantileTable":
        points = np.percentile(np.asarray(values, dtype=np.float64), grid)
        return cls(tuple(grid), tuple(round(float(p), 4) for p in points))

    def at(self, percentile: float) -> float:
        return float(np.interp(percentile, self.percentiles, self.values))

    def draw(self, uniform: Floats) -> Floats:
        """Inverse transform of numbers in [0, 1)."""
        return np.interp(uniform * 100, self.percentiles, self.values)

    def tokens(self, uniform: Floats) -> NDArray[np.int64]:
        """Whole tokens, at least one."""
        whole: NDArray[np.int64] = np.rint(self.draw(uniform)).astype(np.int64)
        return np.maximum(whole, 1)

    @property
    def mean(self) -> float:
        """Exact for the piecewise linear table."""
        p, v = np.asarray(self.percentiles) / 100, np.asarray(self.values)
        return float((np.diff(p) * (v[1:] + v[:-1]) / 2).sum())

    def share_above(self, value: float) -> float:
        return 1 - float(np.interp(value, self.values, self.percentiles)) / 100
