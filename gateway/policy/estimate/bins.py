"""The grid that all sketches share: DDSketch's logarithmic mapping."""

from functools import cache

import numpy as np
from ddsketch.mapping import LogarithmicMapping

from gateway.policy.estimate.estimate import Floats, Lengths


class Bins:
    """Bin i holds the lengths in (γ^(i−1), γ^i]; lengths are clamped to 1 … `longest`."""

    def __init__(self, accuracy: float, longest: int) -> None:
        self._mapping = LogarithmicMapping(accuracy)
        self._last = self._mapping.key(longest)
        self.longest = longest
        self.count = self._last + 1
        keys = np.arange(self.count)
        gamma = (1 + accuracy) / (1 - accuracy)
        self.edges: Floats = np.asarray(gamma**keys, dtype=np.float64)
        middle = [self._mapping.value(int(key)) for key in keys]
        self.tokens: Lengths = np.clip(np.rint(middle), 1, longest).astype(np.int64)

    def key(self, tokens: float) -> int:
        if tokens <= 1:
            return 0
        return min(self._last, int(self._mapping.key(tokens)))


@cache
def bins_of(accuracy: float, longest: int) -> Bins:
    return Bins(accuracy, longest)
