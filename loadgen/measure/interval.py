"""Confidence intervals: of a share inside one run, and of a figure over repeated runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959964

#: Two-sided 95 % points of Student's t by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_T95_COARSE = ((20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980))


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high


def t95(freedom: int) -> float:
    """Conservative between the tabulated degrees of freedom."""
    if freedom < 1:
        return math.inf
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    value = _T95[-1]
    for degrees, point in _T95_COARSE:
        if freedom >= degrees:
            value = point
    return value


def wilson(good: int, total: int) -> Interval:
    """Of a share of independent trials."""
    if total == 0:
        return Interval(0.0, 1.0)
    share, z2 = good / total, Z95 * Z95
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def share_over_time(flags: Sequence[bool], batches: int = 20) -> Interval:
    """Of a share whose trials, in time order, lean on each other because they met the same queue.

    The wider of Wilson's interval and the one of batch means: neighbours in a queue share their fate, so
    counting them as independent would claim too much.
    """
    plain = wilson(sum(flags), len(flags))
    count = min(batches, len(flags) // 10)
    if count < 5:
        return plain
    means = [float(np.mean(part)) for part in np.array_split(np.asarray(flags, dtype=float), count)]
    batched = mean_interval(means)
    return Interval(max(0.0, min(plain.low, batched.low)), min(1.0, max(plain.high, batched.high)))


def mean_interval(values: Sequence[float]) -> Interval:
    """Of the mean of independent repetitions; unbounded when there is only one."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(-math.inf, math.inf)
    half = t95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Of ours - theirs, where the i-th runs of both did the same work."""
    return mean_interval([a - b for a, b in zip(ours, theirs, strict=True)])
