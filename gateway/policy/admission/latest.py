"""The newest lengths that were told of a class. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.policy.estimate.estimate import Floats

#: An answer with a limit so much longer than that of whoever told the newest lengths is still told by them.
_ALIKE = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class Latest:
    """What was told last of the lengths of a class, by somebody whose limit was `limit_tokens`. `told`: the very table."""

    lengths: Floats
    limit_tokens: int
    told: NDArray[np.integer]

    @classmethod
    def of(cls, lengths: NDArray[np.integer], limit_tokens: int) -> "Latest":
        return cls(np.asarray(lengths, dtype=np.float64), limit_tokens, lengths)

    def says(self, lengths: NDArray[np.integer], limit_tokens: int) -> bool:
        """Whether it would be nothing new."""
        free = lengths.item(-1) < min(self.limit_tokens, limit_tokens)  # of either limit
        if not free and limit_tokens != self.limit_tokens:
            return False
        return lengths is self.told or bool((lengths == self.lengths).all())

    def tells(self, limit_tokens: float) -> bool:
        """Whether it says all of an answer with this limit: lengths beyond the teller's own limit are not in it."""
        return limit_tokens <= _ALIKE * self.limit_tokens or self.lengths[-1] < self.limit_tokens
