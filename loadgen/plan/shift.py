"""How traffic differs from what it was: its rate, its lengths, or both, and by how much. Pure (R-63)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.workload.observed import Observed

#: Of the largest distance between two distributions of lengths, below which they count as the same, however sure it is.
_SAME = 0.15
#: Kolmogorov and Smirnov's factor for a chance of 1 in 1,000.
_SURE = 1.95
#: Deviations of a normal variable for a chance of 1 in 1,000.
_DEVIATIONS = 3.29
#: Pieces of a window, by which it is seen how much the rate varies by itself.
_PIECES = 10


@dataclass(frozen=True, slots=True)
class LengthShift:
    """`what`: "prompts" or "answers". Tokens before and now."""

    what: str
    median_before: float
    median_now: float
    distance: float

    def __str__(self) -> str:
        medians = f"median {self.median_before:.0f} -> {self.median_now:.0f}"
        return f"{self.what} are distributed otherwise ({medians})"

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "median_before": self.median_before,
            "median_now": self.median_now,
            "distance": self.distance,
        }


@dataclass(frozen=True, slots=True)
class Pace:
    """Arrivals of a window. `dispersion`: variance of the count in a piece of it over its mean; 1 for a Poisson process, more
    where requests come in bursts or swells, which are no change of the rate."""

    requests: int
    seconds: float
    dispersion: float = 1.0

    @classmethod
    def of(cls, observed: Observed, within_s: float = math.inf, least: int = 0) -> "Pace":
        """Of the end of the window, with `least` requests in it where there are so many."""
        times = np.array([row.at_s or 0.0 for row in observed.rows])
        start_s = max(0.0, observed.window_s - within_s)
        if least and len(times) > least:
            start_s = min(start_s, float(times[-least - 1]))
        return cls.between(start_s, observed.window_s, times[times > start_s] if start_s else times)

    @classmethod
    def between(cls, start_s: float, end_s: float, times: "np.ndarray[Any, np.dtype[np.float64]]") -> "Pace":
        counts = np.histogram(times, bins=_PIECES, range=(start_s, max(end_s, start_s + 1e-9)))[0]
        mean = float(counts.mean())
        spread = float(counts.var(ddof=1)) / mean if mean else 1.0
        return cls(len(times), end_s - start_s, max(1.0, spread))

    @property
    def rate_ps(self) -> float:
        return self.requests / self.seconds if self.seconds > 0 else math.inf


@dataclass(frozen=True, slots=True)
class RateShift:
    """Requests/s. `changed`: by the least change that counts, at least. `sure`: chance has as much in 1 of 1,000."""

    before_ps: float
    now_ps: float
    changed: bool
    sure: bool

    @classmethod
    def of(cls, before: Pace, now: Pace, least: float) -> "RateShift":
        """`least`: 0.25 is a factor of 1.25, up or down."""
        if not (before.requests and now.requests and before.seconds > 0 and now.seconds > 0):
            return cls(before.rate_ps, now.rate_ps, changed=False, sure=False)
        moved = abs(math.log(now.rate_ps / before.rate_ps))
        noise = math.sqrt(before.dispersion / before.requests + now.dispersion / now.requests)
        return cls(before.rate_ps, now.rate_ps, moved >= math.log1p(least) - 1e-9, moved > _DEVIATIONS * noise)

    @property
    def factor(self) -> float:
        return self.now_ps / self.before_ps

    @property
    def way(self) -> int:
        """1 where it has risen, -1 where it has fallen, 0 where neither counts."""
        if not self.changed:
            return 0
        return 1 if self.now_ps > self.before_ps else -1

    def __str__(self) -> str:
        figures = f"{self.before_ps:.3g} -> {self.now_ps:.3g}/s"
        return f"{figures}, {self.factor:.3g} times" if self.changed and self.sure else f"no change shown ({figures})"

    def document(self) -> dict[str, Any]:
        return {
            "before_ps": self.before_ps,
            "now_ps": self.now_ps,
            "factor": self.factor,
            "changed": self.changed and self.sure,
        }


@dataclass(frozen=True, slots=True)
class Shift:
    """`lengths`: those that are distributed otherwise; none where it is not shown, or by little."""

    rate: RateShift
    lengths: tuple[LengthShift, ...] = ()


def length_shifts(before: Observed, now: Observed) -> tuple[LengthShift, ...]:
    found = []
    for what, old, new in (
        ("prompts", [d.prompt_tokens for d in before.rows], [d.prompt_tokens for d in now.rows]),
        ("answers", [d.output_tokens for d in before.rows], [d.output_tokens for d in now.rows]),
    ):
        sure = _SURE * math.sqrt((len(old) + len(new)) / (len(old) * len(new)))
        apart = distance(old, new)
        if apart > max(_SAME, sure):
            found.append(LengthShift(what, float(np.median(old)), float(np.median(new)), apart))
    return tuple(found)


def distance(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The largest between their cumulative distributions (Kolmogorov and Smirnov's)."""
    a, b = np.sort(ours), np.sort(theirs)
    at = np.concatenate([a, b])
    return float(np.abs(a.searchsorted(at, "right") / a.size - b.searchsorted(at, "right") / b.size).max())
