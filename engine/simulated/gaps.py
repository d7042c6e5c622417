"""The gaps between the tokens of an answer, without a time for each token: how many there are of each length."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

#: Lengths within one per cent of each other are one: a length is given to half of that.
_WIDTH = 0.01
_LEAST_S, _MOST_S = 1e-5, 100.0
PLACES = int(log(_MOST_S / _LEAST_S) / _WIDTH) + 2
_LANE = 4  # bytes of a count
PLACE_BITS = 8 * _LANE
_PER, _FIRST = 1 / _WIDTH, 1 - log(_LEAST_S) / _WIDTH


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of one answer or of many: `count` of them, pauses included. `counts` (32 bits each) say how many there
    are of each length, beginning with the one whose place is `first`, and pauses are told one by one. `longest_s` and
    `total_s` are exact, as are pauses; what was counted is exact to half a per cent."""

    first: int = 0
    counts: bytes = b""
    count: int = 0
    pauses_s: tuple[float, ...] = ()
    longest_s: float = 0.0
    total_s: float = 0.0

    def __len__(self) -> int:
        return self.count

    def with_pause(self, seconds: float) -> "Gaps":
        """One gap more."""
        pauses, longest_s = (*self.pauses_s, seconds), max(self.longest_s, seconds)
        return Gaps(self.first, self.counts, self.count + 1, pauses, longest_s, self.total_s + seconds)

    def weighed(self) -> "Weighed":
        """Lengths in rising order, and how many there are of each."""
        return _weighed(self.counted(), self.pauses_s, self.longest_s)

    def counted(self) -> NDArray[np.int64]:
        """By place, pauses left out."""
        counts = np.zeros(PLACES, dtype=np.int64)
        self.count_into(counts)
        return counts

    def count_into(self, counts: NDArray[np.int64]) -> None:
        counts[self.first : self.first + len(self.counts) // _LANE] += np.frombuffer(self.counts, np.uint32)

    def each_s(self) -> NDArray[np.float64]:
        """Every gap, the shortest first."""
        return np.repeat(*self.weighed())


Weighed = tuple[NDArray[np.float64], NDArray[np.int64]]


def laid_out(counts: int) -> tuple[int, bytes]:
    """Counts as one number, each in the bits of its place: the least place of which there are any, and the bytes from there."""
    if not counts:
        return 0, b""
    first = ((counts & -counts).bit_length() - 1) // PLACE_BITS
    counts >>= first * PLACE_BITS
    return first, counts.to_bytes(-(-counts.bit_length() // PLACE_BITS) * _LANE, "little")


def together(many: Iterable[Gaps]) -> Gaps:
    """The gaps of one answer that came in parts."""
    parts = list(many)
    counted = sum((part.counted() for part in parts), np.zeros(PLACES, np.int64))
    return Gaps(
        *laid_out(int.from_bytes(counted.astype(np.uint32).tobytes(), "little")),
        sum(part.count for part in parts),
        tuple(pause_s for part in parts for pause_s in part.pauses_s),
        max((part.longest_s for part in parts), default=0.0),
        sum(part.total_s for part in parts),
    )


def weighed(many: Iterable[Gaps]) -> tuple[Weighed, float]:
    """The gaps of many answers, and what they add up to."""
    counts, pauses, longest_s, total_s = np.zeros(PLACES, dtype=np.int64), array("d"), 0.0, 0.0
    for one in many:
        one.count_into(counts)
        pauses.extend(one.pauses_s)
        longest_s, total_s = max(longest_s, one.longest_s), total_s + one.total_s
    return _weighed(counts, pauses, longest_s), total_s


def _weighed(counted: NDArray[np.int64], pauses_s: Iterable[float], longest_s: float) -> Weighed:
    places = counted.nonzero()[0]
    pauses = np.array(tuple(pauses_s), dtype=np.float64)
    lengths = np.concatenate([_LENGTHS_S[places], pauses])
    counts = np.concatenate([counted[places], np.ones(len(pauses), dtype=np.int64)])
    order = np.argsort(lengths, kind="stable")
    lengths, counts = lengths[order], counts[order]
    if lengths.size and counts[-1] > 1:  # the longest is known better than its place says
        lengths, counts = np.append(lengths, longest_s), np.append(counts, 1)
        counts[-2] -= 1
    elif lengths.size:
        lengths[-1] = longest_s
    return np.minimum(lengths, longest_s), counts


def place_of(seconds: float) -> int:
    """Where gaps of this length are counted."""
    if seconds <= _LEAST_S:
        return 0
    place = int(log(seconds) * _PER + _FIRST)
    return place if place < PLACES else PLACES - 1


#: In the middle of each place.
_LENGTHS_S = _LEAST_S * np.exp((np.arange(PLACES) - 0.5) * _WIDTH)
