"""The newest lengths that were told of a class. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gateway.policy.admission.rows import Candidate, Rows
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


@dataclass(slots=True)
class LatestOfClasses:
    """Of every class that answers are of. `news`: classes of which something new was said since the answers were revised."""

    news: set[Hashable] = field(default_factory=set)
    _known: dict[Hashable, Latest] = field(default_factory=dict)

    def tell(self, candidate: Candidate) -> None:
        kin, limit = candidate.kin, candidate.limit_tokens
        if kin is None:
            return
        lengths, known = candidate.estimate.lengths, self._known.get(kin)
        if known is not None and known.says(lengths, limit):
            return
        self._known[kin] = Latest.of(lengths, limit)
        self.news.add(kin)

    def doubt(self, candidate: Candidate) -> None:
        """What it says of itself may be older than what was told last."""
        self.news.update({candidate.kin} & self._known.keys())

    def revise(self, rows: Rows) -> float | None:
        """Answers that were let in before more was known of their class. Gives the factor that all lengths together have changed
        by."""
        before = float(rows.lengths[: rows.count].sum())
        for at, kin in enumerate(rows.kin):
            if kin in self.news and (latest := self._known[kin]).tells(float(rows.limit[at])):
                np.minimum(latest.lengths, rows.limit[at], out=rows.lengths[at])
        kept = set(rows.kin)
        self._known = {kin: latest for kin, latest in self._known.items() if kin in kept}
        self.news = set()
        return float(rows.lengths[: rows.count].sum()) / before if before > 0.0 else None
