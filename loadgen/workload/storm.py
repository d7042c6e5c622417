"""Correlated long requests: many of one workload within a short time, on top of the ordinary traffic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadgen.demand import Chain
from loadgen.failure import LoadgenError
from loadgen.workload.base import Workload


@dataclass(frozen=True, slots=True)
class Storm:
    """`count` requests at random within `within_s` from `at_s`; their class is "storm" unless they have one.

    `independent` spreads the same requests over the whole run instead: the control to compare with.
    """

    workload: Workload
    count: int
    at_s: float
    within_s: float
    independent: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 or self.at_s < 0 or not self.within_s > 0:
            raise LoadgenError("storm: needs requests ≥ 1, at ≥ 0 and within > 0")

    def draw(self, window_s: float, rng: np.random.Generator) -> tuple[list[float], Sequence[Chain]]:
        """Start times and chains."""
        place, body = rng.spawn(2)
        chains = self.workload.draw(self.count, body)
        start, length = (0.0, window_s) if self.independent else (self.at_s, self.within_s)
        times = np.sort(start + length * place.random(len(chains))).tolist()
        labelled = [tuple(replace(d, klass=d.klass or "storm") for d in chain) for chain in chains]
        return times, labelled
