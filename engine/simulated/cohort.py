"""Running sequences that do nothing but decode: one token each in every step, so one count moves them all."""

from collections.abc import Iterator

from engine.simulated.sequence import Sequence


class Cohort:
    """A member's computed tokens are its own base plus the common clock.

    Members are kept by what their base leaves over a whole number of blocks, because those of equal remainder
    cross the end of a block in the same step; nobody else needs a look.
    """

    def __init__(self, block_size: int) -> None:
        self.clock = 0
        self.sampled = 0  # the clock of the last step whose tokens have been sampled
        self.count = 0
        self._size = block_size
        self._base_sum = 0
        self._buckets: list[dict[Sequence, int]] = [{} for _ in range(block_size)]  # members and their bases

    def __iter__(self) -> Iterator[Sequence]:
        for bucket in self._buckets:
            yield from bucket

    @property
    def context_tokens(self) -> int:
        return self._base_sum + self.count * self.clock

    def join(self, sequence: Sequence) -> None:
        """Between two steps, when all but the newest token of the sequence is computed."""
        base = sequence.computed - self.clock
        sequence.enter(self, base)
        self._buckets[base % self._size][sequence] = base
        self._base_sum += base
        self.count += 1

    def leave(self, sequence: Sequence) -> None:
        base = sequence.leave()
        del self._buckets[base % self._size][sequence]
        self._base_sum -= base
        self.count -= 1

    def due(self) -> dict[Sequence, int]:
        """Members whose next token begins a block."""
        return self._buckets[-self.clock % self._size]

    def growth(self, steps: int) -> int:
        """Blocks that `steps` more steps need, if nobody holds any to spare."""
        size, clock, blocks = self._size, self.clock, 0
        for remainder, bucket in enumerate(self._buckets):
            if bucket:
                used = (remainder + clock) % size
                blocks += len(bucket) * (-((used + steps) // -size) - (used > 0))
        return blocks

    def advance(self, steps: int) -> Iterator[tuple[Sequence, int]]:
        """Moves the clock; yields everyone who has begun or filled a block on the way, and how far they are now."""
        size, before = self._size, self.clock
        self.clock = after = before + steps
        for remainder, bucket in enumerate(self._buckets):
            if bucket:
                used = (remainder + before) % size
                if not used or used + steps >= size:
                    for sequence, base in bucket.items():
                        yield sequence, base + after
