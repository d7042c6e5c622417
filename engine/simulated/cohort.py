"""Running sequences that do nothing but decode: one token each in every step, so one count moves them all."""

from collections.abc import Iterator

from engine.simulated.sequence import Sequence


class Cohort:
    """A member's computed tokens are its own base plus the common clock.

    Members are kept by what their base leaves over a whole number of blocks, because those of equal remainder
    cross the end of a block in the same step; nobody else needs a look. Nor does a member in a `row`: what it
    holds follows from how far it is, so its account is kept by number until it leaves.
    """

    def __init__(self, block_size: int) -> None:
        self.clock = 0
        self.sampled = 0  # the clock of the last step whose tokens have been sampled
        self.count = 0
        self._size = block_size
        self._base_sum = 0
        # Members and their bases by remainder; no empty ones, so that a small cohort is a short look.
        self._buckets: dict[int, dict[Sequence, int]] = {}
        self._rows: dict[int, dict[Sequence, int]] = {}

    def __iter__(self) -> Iterator[Sequence]:
        for kept in (self._buckets, self._rows):
            for remainder in sorted(kept):
                yield from kept[remainder]

    @property
    def context_tokens(self) -> int:
        return self._base_sum + self.count * self.clock

    @property
    def rows(self) -> Iterator[Sequence]:
        for bucket in self._rows.values():
            yield from bucket

    def join(self, sequence: Sequence) -> None:
        """Between two steps, when all but the newest token of the sequence is computed."""
        base = sequence.computed - self.clock
        sequence.enter(self, base)
        _put(self._buckets, base % self._size, sequence, base)
        self._base_sum += base
        self.count += 1

    def leave(self, sequence: Sequence) -> None:
        """A row must have been broken up before."""
        base = sequence.leave()
        _take(self._buckets, base % self._size, sequence)
        self._base_sum -= base
        self.count -= 1

    def make_row(self, sequence: Sequence, base: int) -> None:
        remainder = base % self._size
        _take(self._buckets, remainder, sequence)
        _put(self._rows, remainder, sequence, base)

    def break_row(self, sequence: Sequence) -> bool:
        """Whether it was one; then its account has to be brought up to date."""
        base = sequence.computed - self.clock
        remainder = base % self._size
        if sequence not in self._rows.get(remainder, ()):
            return False
        _take(self._rows, remainder, sequence)
        _put(self._buckets, remainder, sequence, base)
        return True

    @property
    def due(self) -> int:
        """How many members begin a block with their next token."""
        remainder = -self.clock % self._size
        return len(self._buckets.get(remainder, ())) + len(self._rows.get(remainder, ()))

    def is_due(self, sequence: Sequence) -> bool:
        return sequence.computed % self._size == 0

    def growth(self, steps: int) -> int:
        """Blocks that `steps` more steps need, if nobody holds any to spare."""
        size, clock, blocks = self._size, self.clock, 0
        for kept in (self._buckets, self._rows):
            for remainder, members in kept.items():
                used = (remainder + clock) % size
                blocks += len(members) * (-((used + steps) // -size) - (used > 0))
        return blocks

    def most_growth(self, steps: int) -> int:
        """Never less than `growth`, and known at once."""
        return self.count * (steps // self._size + 1)

    def advance(self, steps: int) -> tuple[int, list[tuple[Sequence, int, int]]]:
        """Moves the clock. Returns the blocks that rows have begun, and of the others everyone who has begun or filled
        a block on the way: the sequence, its base, and how far it is now."""
        size, before, blocks = self._size, self.clock, 0
        self.clock = after = before + steps
        crossing: list[tuple[Sequence, int, int]] = []
        if steps == 1:  # only two remainders are at the end of a block: those that begin one, and those that fill one
            first = -before % size
            if first in self._rows:
                blocks = len(self._rows[first])
            if not self._buckets:
                return blocks, crossing
            places = (first,) if size == 1 else (first, (first - 1) % size)
            buckets = [self._buckets[place] for place in sorted(places) if place in self._buckets]
        else:
            for remainder, rows in self._rows.items():
                used = (remainder + before) % size
                blocks += len(rows) * (-((used + steps) // -size) - (used > 0))
            buckets = []
            for remainder in sorted(self._buckets):
                used = (remainder + before) % size
                if not used or used + steps >= size:
                    buckets.append(self._buckets[remainder])
        for bucket in buckets:
            crossing += [(sequence, base, base + after) for sequence, base in bucket.items()]
        return blocks, crossing


_Kept = dict[int, dict[Sequence, int]]


def _put(kept: _Kept, remainder: int, sequence: Sequence, base: int) -> None:
    bucket = kept.get(remainder)
    if bucket is None:
        kept[remainder] = {sequence: base}
    else:
        bucket[sequence] = base


def _take(kept: _Kept, remainder: int, sequence: Sequence) -> None:
    bucket = kept[remainder]
    del bucket[sequence]
    if not bucket:
        del kept[remainder]
