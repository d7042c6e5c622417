"""Is the run stationary? A slope test on concurrency and on TTFT over the time requests were being sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.measure.interval import t95
from loadgen.result import Floats, Result

_BINS = 16
#: A rise below this share of the mean is not worth calling saturation, however significant.
_RISE = 0.3


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through time bins. `rise` is the fitted growth over the window in units of the mean."""

    rise: float
    t: float
    significant: bool


@dataclass(frozen=True, slots=True)
class Saturation:
    """`saturated` when both concurrency and TTFT rise through the window: the queue grows without end."""

    judged: bool
    saturated: bool = False
    concurrency: Trend | None = None
    ttft: Trend | None = None
    why: str = ""


def detect(results: Sequence[Result]) -> Saturation:
    """Judges the window from the end of the fill-up to the last intended send."""
    if len(results) < 4 * _BINS:
        return Saturation(False, why=f"fewer than {4 * _BINS} requests")
    start, stop = _window(results)
    if stop - start <= 0:
        return Saturation(False, why="requests were not spread over time")
    edges = np.linspace(start, stop, _BINS + 1)
    concurrency = _trend(_concurrency(results, edges))
    ttft = _trend(_ttft(results, edges))
    if concurrency is None or ttft is None:
        return Saturation(False, why="too few requests with a first token")
    both = concurrency.significant and ttft.significant
    return Saturation(True, both, concurrency, ttft, "concurrency and TTFT rise through the run" if both else "")


def _window(results: Sequence[Result]) -> tuple[float, float]:
    """A loaded system fills up for about one residence time; at most half of the run is given to that."""
    stop = max(r.intended_s for r in results)
    start = min(r.intended_s for r in results)
    residence = float(np.median([r.e2e_s for r in results]))
    return start + min(residence, (stop - start) / 2), stop


def _concurrency(results: Sequence[Result], edges: Floats) -> Floats:
    middles = (edges[:-1] + edges[1:]) / 2
    begun = np.sort([r.intended_s for r in results])
    ended = np.sort([r.end_s for r in results])
    inside = np.searchsorted(begun, middles, "right") - np.searchsorted(ended, middles, "right")
    return np.asarray(inside, dtype=np.float64)


def _ttft(results: Sequence[Result], edges: Floats) -> Floats:
    """Mean wait for the first token by bin. One that never got it waited until its end."""
    place = np.searchsorted(edges, [r.intended_s for r in results], "right") - 1
    waits = np.asarray([r.e2e_s if r.ttft_s is None else r.ttft_s for r in results])
    return np.asarray([waits[place == i].mean() if (place == i).any() else np.nan for i in range(len(edges) - 1)])


def _trend(values: Floats) -> Trend | None:
    known = ~np.isnan(values)
    if known.sum() < 8:
        return None
    x, y = np.arange(values.size, dtype=np.float64)[known], values[known]
    dx = x - x.mean()
    slope = float((dx * y).sum() / (dx * dx).sum())
    residual = y - y.mean() - slope * dx
    error = float(np.sqrt((residual * residual).sum() / (x.size - 2) / (dx * dx).sum()))
    t = slope / error if error > 0 else (np.inf if slope > 0 else 0.0)
    mean = float(y.mean())
    rise = slope * (values.size - 1) / mean if mean > 0 else 0.0
    # three times the 95 % point: neighbouring bins are correlated, which a plain t test takes for evidence
    return Trend(rise, float(t), bool(t > 3 * t95(int(x.size) - 2) and rise > _RISE))
