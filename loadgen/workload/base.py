"""A workload draws requests: their lengths and labels, grouped in sessions."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from loadgen.demand import Chain


class Workload(Protocol):
    """`draw` gives `count` chains (sessions; a lone request is a chain of one) and never depends on the rate."""

    @property
    def name(self) -> str: ...

    @property
    def mean_turns(self) -> float:
        """Requests per chain, on average."""
        ...

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        """`count` None asks a trace for all it has; a family, which is endless, refuses."""
        ...

    def notes(self) -> Sequence[str]:
        """What a report must say about this workload: source, licence, what was dropped or clipped."""
        ...
