"""The gaps between the tokens of an answer, without a time for each token: how many there are of each length."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, log

import numpy as np
from numpy.typing import NDArray

#: Lengths within one per cent of each other are one: a length is given to half of that.
_WIDTH = 0.01
_LEAST_S, _MOST_S = 1e-5, 100.0
PLACES = int(log(_MOST_S / _LEAST_S) / _WIDTH) + 2
_PER, _FIRST = 1 / _WIDTH, 1 - log(_LEAST_S) / _WIDTH


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of one answer or of many: `counts` by the place of a length (aligned), and pauses one by one. `longest_s` and
    `total_s` are exact, as are pauses; what was counted is exact to half a per cent."""

    places: "array[int]" = field(default_factory=lambda: array("H"))
    counts: "array[int]" = field(default_factory=lambda: array("I"))
    pauses_s: "array[float]" = field(default_factory=lambda: array("d"))
    longest_s: float = 0.0
    total_s: float = 0.0

    def __len__(self) -> int:
        return sum(self.counts) + len(self.pauses_s)

    def with_pause(self, seconds: float) -> "Gaps":
        """One gap more."""
        pauses = array("d", [*self.pauses_s, seconds])
        return Gaps(self.places, self.counts, pauses, max(self.longest_s, seconds), self.total_s + seconds)

    def weighed(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Lengths in rising order, and how many there are of each."""
        lengths = np.concatenate([_LENGTHS_S[np.array(self.places, dtype=np.int64)], np.array(self.pauses_s)])
        counts = np.concatenate([np.array(self.counts, dtype=np.int64), np.ones(len(self.pauses_s), dtype=np.int64)])
        order = np.argsort(lengths, kind="stable")
        lengths, counts = lengths[order], counts[order]
        if lengths.size and counts[-1] > 1:  # the longest is known better than its place says
            lengths, counts = np.append(lengths, self.longest_s), np.append(counts, 1)
            counts[-2] -= 1
        elif lengths.size:
            lengths[-1] = self.longest_s
        return np.minimum(lengths, self.longest_s), counts

    def each_s(self) -> NDArray[np.float64]:
        """Every gap, the shortest first."""
        return np.repeat(*self.weighed())


def together(many: Iterable[Gaps]) -> Gaps:
    """The gaps of several answers."""
    counts = np.zeros(PLACES, dtype=np.int64)
    pauses, longest_s, total_s = array("d"), 0.0, 0.0
    for one in many:
        counts[np.array(one.places, dtype=np.int64)] += np.array(one.counts, dtype=np.int64)
        pauses.extend(one.pauses_s)
        longest_s, total_s = max(longest_s, one.longest_s), total_s + one.total_s
    places = np.flatnonzero(counts)
    width = "I" if counts.max(initial=0) < 1 << 32 else "Q"
    return Gaps(array("H", places.tolist()), array(width, counts[places].tolist()), pauses, longest_s, total_s)


def place_of(seconds: float) -> int:
    """Where gaps of this length are counted."""
    if seconds <= _LEAST_S:
        return 0
    place = int(log(seconds) * _PER + _FIRST)
    return place if place < PLACES else PLACES - 1


def longest_in(place: int) -> float:
    """Where the next place begins."""
    return _EDGES_S[place]


_EDGES_S = [_LEAST_S * exp(place * _WIDTH) for place in range(PLACES)]
#: In the middle of each place.
_LENGTHS_S = _LEAST_S * np.exp((np.arange(PLACES) - 0.5) * _WIDTH)
