"""The distribution of the tokens that one answer has still to come (R-01)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Quantile levels of every table, so that many stack into a matrix. Denser above, where memory is lost.
#: The ends stand for the 0.0001 and 0.9999 quantiles; what lies beyond is taken for impossible.
LEVELS: Floats = np.array(
    (
        *(0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75),
        *(0.8, 0.825, 0.85, 0.875, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1),
    ),
    dtype=np.float64,
)
POINTS = len(LEVELS)
END = 1e-4
#: Levels as they are looked up in a sketch.
LOOKUP: Floats = np.clip(LEVELS, END, 1 - END)
#: Integral of the quantile function by trapezoids.
_MEAN: Floats = np.concatenate(([LEVELS[1]], LEVELS[2:] - LEVELS[:-2], [1 - LEVELS[-2]])) / 2
LEVELS.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """`lengths`: (33,) tokens still to come at `LEVELS`, ascending; linear between, so ties are mass at one length.

    `limit_tokens` is what the answer cannot pass (max_tokens, window), where there is such a limit.
    """

    lengths: Lengths
    limit_tokens: int | None = None

    @classmethod
    def exactly(cls, tokens: int) -> "Estimate":
        """An answer of known length: the oracle."""
        return cls(np.full(POINTS, tokens, dtype=np.int64), tokens)

    @classmethod
    def of_samples(cls, tokens: Sequence[int] | Lengths) -> "Estimate":
        """The empirical distribution of realised lengths (at least one)."""
        return cls(np.quantile(np.asarray(tokens), LEVELS, method="inverted_cdf").astype(np.int64))

    @property
    def mean(self) -> float:
        return float(_MEAN @ self.lengths)

    def quantile(self, q: float) -> int:
        """The smallest whole number of tokens that suffices with chance `q`."""
        return math.ceil(float(np.interp(q, LEVELS, self.lengths)) - 1e-9)

    def survival(self, tokens: float) -> float:
        """The chance that more than `tokens` are still to come."""
        return 1.0 - self._reached(tokens)

    def given(self, generated_tokens: int) -> "Estimate":
        """What is still to come of an answer that has `generated_tokens` and has not ended (R-07).

        An answer that outlives its table is taken to go on for up to as long again: nothing is known of it but
        that it is long.
        """
        if generated_tokens <= 0:
            return self
        left = None if self.limit_tokens is None else max(0, self.limit_tokens - generated_tokens)
        reached = self._reached(generated_tokens)
        if reached < 1.0:
            total = np.interp(reached + (1.0 - reached) * LEVELS, LEVELS, self.lengths)
            rest = np.ceil(total - generated_tokens - 1e-9)
        else:
            rest = np.ceil(LEVELS * generated_tokens)
        return Estimate(np.clip(rest, 1, left).astype(np.int64) if left != 0 else np.zeros(POINTS, np.int64), left)

    def capped(self, max_tokens: int | None) -> "Estimate":
        """Longer answers are cut at `max_tokens`, so their mass piles up there."""
        if max_tokens is None or (self.limit_tokens is not None and self.limit_tokens <= max_tokens):
            return self
        limit = max(0, max_tokens)
        return Estimate(self.lengths if self.lengths[-1] <= limit else np.minimum(self.lengths, limit), limit)

    def thinking_capped(self, budget_tokens: int | None, reasoning_share: float) -> "Estimate":
        """`reasoning_share` of each length is reasoning and ends at the budget; the visible answer stays."""
        if budget_tokens is None:
            return self
        reasoning = np.minimum(self.lengths * reasoning_share, budget_tokens)
        return Estimate(np.ceil(reasoning + self.lengths * (1 - reasoning_share)).astype(np.int64), self.limit_tokens)

    def scaled(self, factor: float) -> "Estimate":
        """Every length times a headroom factor (R-04), never past the limit."""
        lengths = np.ceil(self.lengths * factor).astype(np.int64)
        return Estimate(
            lengths if self.limit_tokens is None else np.minimum(lengths, self.limit_tokens), self.limit_tokens
        )

    def pit(self, tokens: int) -> float:
        """Where a realised length fell in the distribution; an atom counts with its middle."""
        return (self._reached(tokens) + self._reached(tokens - 1)) / 2

    def _reached(self, tokens: float) -> float:
        """P(length ≤ tokens)."""
        lengths = self.lengths
        above = int(lengths.searchsorted(tokens, side="right"))
        if above == 0:
            return 0.0
        if above == POINTS:
            return 1.0
        low, high = int(lengths[above - 1]), int(lengths[above])
        start, end = float(LEVELS[above - 1]), float(LEVELS[above])
        return start + (end - start) * (tokens - low) / (high - low)
