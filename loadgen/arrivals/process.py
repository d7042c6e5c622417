"""Arrival processes. Each is what its name says; gaps are drawn at unit rate and stretched by the rate, so the
same seed gives the same pattern at every rate."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from loadgen.failure import LoadgenError


class Kind(StrEnum):
    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    REPLAY = "replay"
    CLOSED = "closed"


class Ramp(StrEnum):
    NONE = "none"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come.

    rate: per second; in a ramp, the rate at its end. burstiness: shape of the gamma gaps, as in vLLM: 1 is
    Poisson, below 1 burstier, inf a fixed gap. time_scale: a replay at 2 runs twice as fast. concurrency: of
    the closed loop, which has no schedule.
    """

    kind: Kind = Kind.POISSON
    rate: float = 1.0
    burstiness: float = 1.0
    ramp: Ramp = Ramp.NONE
    ramp_from: float = 0.0
    time_scale: float = 1.0
    concurrency: int = 1

    def __post_init__(self) -> None:
        scheduled = self.kind not in (Kind.REPLAY, Kind.CLOSED)
        if scheduled and not (0 < self.rate < math.inf):
            raise LoadgenError(f"arrivals: rate {self.rate:g} is not a positive number of requests per second")
        if not self.burstiness > 0:
            raise LoadgenError(f"arrivals: burstiness {self.burstiness:g} must be above 0")
        if not (0 < self.time_scale < math.inf):
            raise LoadgenError(f"arrivals: time scale {self.time_scale:g} must be above 0")
        if self.kind is Kind.CLOSED and self.concurrency < 1:
            raise LoadgenError(f"arrivals: concurrency {self.concurrency} must be at least 1")
        if self.ramp is not Ramp.NONE and not (0 < self.ramp_from < math.inf):
            raise LoadgenError(f"arrivals: a ramp starts at a rate above 0, not {self.ramp_from:g}")

    @property
    def open_loop(self) -> bool:
        return self.kind is not Kind.CLOSED

    def describe(self) -> str:
        match self.kind:
            case Kind.CLOSED:
                return f"closed loop, {self.concurrency} at a time"
            case Kind.REPLAY:
                return f"replay of the trace's own times, {self.time_scale:g}x speed"
            case Kind.GAMMA:
                text = f"gamma, burstiness {self.burstiness:g}, {self.rate:g}/s"
            case _:
                text = f"{self.kind}, {self.rate:g}/s"
        return text if self.ramp is Ramp.NONE else f"{text}, {self.ramp} ramp from {self.ramp_from:g}/s"


def unit_gaps(arrivals: Arrivals, rng: np.random.Generator) -> Iterator[float]:
    """Endless gaps of mean 1."""
    draw: Callable[[int], np.ndarray[tuple[int], np.dtype[np.float64]]]
    if arrivals.kind is Kind.CONSTANT or math.isinf(arrivals.burstiness):
        draw = np.ones
    elif arrivals.kind is Kind.GAMMA:
        shape = arrivals.burstiness
        draw = lambda n: rng.gamma(shape, 1 / shape, n)  # noqa: E731
    else:
        draw = lambda n: rng.exponential(1.0, n)  # noqa: E731
    while True:
        yield from draw(1024).tolist()


def arrival_times(
    arrivals: Arrivals, rng: np.random.Generator, *, count: int | None, duration_s: float | None
) -> list[float]:
    """Absolute times from 0, limited by number, by duration or by both. A constant process starts at 0.

    Under a ramp the unit-rate process is bent by the inverse of the integrated rate, which keeps a Poisson
    process Poisson. A ramp needs the duration.
    """
    if count is None and duration_s is None:
        raise LoadgenError("arrivals: say how many requests or for how long")
    if arrivals.ramp is not Ramp.NONE and duration_s is None:
        raise LoadgenError("arrivals: a ramp needs a duration")
    times: list[float] = []
    operational = 0.0
    gaps = unit_gaps(arrivals, rng)
    if arrivals.kind is not Kind.CONSTANT:
        operational = next(gaps)
    while count is None or len(times) < count:
        at = _bend(operational, arrivals, duration_s)
        if duration_s is not None and not at < duration_s:
            break
        times.append(at)
        operational += next(gaps)
    return times


def _bend(operational: float, arrivals: Arrivals, duration_s: float | None) -> float:
    """The time at which the integrated rate reaches `operational`."""
    low, high = arrivals.ramp_from, arrivals.rate
    if arrivals.ramp is Ramp.NONE or low == high:
        return operational / high
    assert duration_s is not None
    if arrivals.ramp is Ramp.LINEAR:
        growth = (high - low) / duration_s
        inside = low * low + 2 * growth * operational
        return math.inf if inside < 0 else (math.sqrt(inside) - low) / growth
    growth = math.log(high / low) / duration_s
    inside = 1 + operational * growth / low
    return math.inf if inside <= 0 else math.log(inside) / growth
