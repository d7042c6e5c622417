"""What is believed about lengths before anything was seen."""

import math
from dataclasses import dataclass

import numpy as np

from gateway.policy.estimate.bins import Bins
from gateway.policy.estimate.estimate import Floats


@dataclass(frozen=True, slots=True)
class Prior:
    """Quantile points (level, tokens), ascending, straight on a logarithmic scale between. The default is wide:
    short chat to long reasoning.
    """

    points: tuple[tuple[float, float], ...] = (
        (0.0, 1),
        (0.1, 50),
        (0.5, 500),
        (0.9, 4000),
        (0.99, 16000),
        (1.0, 65536),
    )

    def __post_init__(self) -> None:
        levels, tokens = [level for level, _ in self.points], [length for _, length in self.points]
        if len(levels) < 2 or levels != sorted(set(levels)) or levels[0] != 0 or levels[-1] != 1:
            raise ValueError("levels of a prior must ascend from 0 to 1")
        if tokens != sorted(tokens) or tokens[0] < 1:
            raise ValueError("tokens of a prior must ascend from at least 1")

    def mass(self, bins: Bins) -> Floats:
        """Probability of each bin, (bins.count,)."""
        levels = [level for level, _ in self.points]
        logs = [math.log(tokens) for _, tokens in self.points]
        # A jump (equal lengths) is a mass: a hair's width keeps the interpolation a function.
        ascending = np.maximum.accumulate(np.asarray(logs) + 1e-12 * np.arange(len(logs)))
        reached = np.interp(np.log(bins.edges), ascending, levels)
        reached[-1] = 1.0
        return np.diff(reached, prepend=0.0)
