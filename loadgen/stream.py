"""A schedule that is drawn as it is sent, so that its length takes no memory."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from loadgen.arrivals.curve import RateCurve
from loadgen.arrivals.process import Arrivals, Kind, Ramp, unit_gaps
from loadgen.failure import LoadgenError
from loadgen.schedule import Planned
from loadgen.workload.base import Workload

#: Requests drawn at a time.
_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Stream:
    """`count` lone requests, open loop, at a steady rate or along a curve. Iterating twice gives the same requests."""

    workload: Workload
    arrivals: Arrivals
    count: int
    seed: int = 0
    curve: RateCurve | None = None

    def __post_init__(self) -> None:
        if self.arrivals.kind in (Kind.REPLAY, Kind.CLOSED) or self.arrivals.ramp is not Ramp.NONE:
            raise LoadgenError("a stream has a steady rate or a curve: no replay, closed loop or ramp")
        if self.workload.mean_turns != 1:
            raise LoadgenError(f"a stream has no sessions; {self.workload.name} has")

    @property
    def requests(self) -> Iterable[Planned]:
        return _Drawn(self)


@dataclass(frozen=True, slots=True)
class _Drawn:
    stream: Stream

    def __iter__(self) -> Iterator[Planned]:
        """Independent draws for times and demands, as `build` has them; in portions, so not the same ones."""
        stream = self.stream
        times, demands = (np.random.default_rng(seed) for seed in np.random.SeedSequence(stream.seed).spawn(2))
        gaps, at_s = unit_gaps(stream.arrivals, times), 0.0
        curve = stream.curve or RateCurve((stream.arrivals.rate,), math.inf)
        for begun in range(0, stream.count, _AT_ONCE):
            chains = stream.workload.draw(min(_AT_ONCE, stream.count - begun), demands)
            for index, (chain, gap) in enumerate(zip(chains, islice(gaps, len(chains)), strict=True), begun):
                at_s = curve.after(at_s, gap)
                yield Planned(index, at_s, chain[0])
