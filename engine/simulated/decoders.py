"""Running sequences that only decode: the cohort that moves them together, and the blocks that they take on their way."""

from engine.simulated.cohort import Cohort
from engine.simulated.ledger import Ledger
from engine.simulated.sequence import Sequence, Status


class Decoders:
    """`joining` have begun to decode, and are in the cohort from the next step on."""

    def __init__(self, ledger: Ledger) -> None:
        self.cohort = Cohort(ledger.block_size)
        self.joining: list[Sequence] = []
        self._ledger = ledger

    def gather(self) -> None:
        """Those that have begun to decode join the others that do."""
        if not self.joining:
            return
        for sequence in self.joining:
            if sequence.status is Status.RUNNING and sequence.computed == sequence.total - 1:
                self.cohort.join(sequence)
        self.joining.clear()

    def scatter(self) -> None:
        for sequence in list(self.cohort):
            self.part(sequence)

    def part(self, sequence: Sequence) -> None:
        """Out of the cohort, with an account of its own."""
        self.look_at(sequence)
        self.cohort.leave(sequence)

    def look_at(self, sequence: Sequence) -> None:
        if self.cohort.break_row(sequence):
            self._ledger.lengthen(sequence)

    def account(self) -> None:
        """Brings up to date what sequences are said to hold."""
        for sequence in self.cohort.rows:
            self._ledger.lengthen(sequence)

    def advance(self, steps: int) -> None:
        """Everyone who begins a block gets it, and full blocks get their keys, in order.

        Where a sequence's blocks are its own anyway, the next ones only lengthen its row, and are taken together.
        """
        ledger = self._ledger
        size, pool = ledger.block_size, ledger.pool
        row_blocks, crossing = self.cohort.advance(steps)
        if row_blocks:
            pool.take(row_blocks)
        for sequence, base, computed in crossing:
            missing = -(-computed // size) - sequence.held
            if missing > 0:
                pool.take(missing)
                sequence.plain += missing
            if computed // size != sequence.keyed:
                ledger.promote(sequence, computed)
            if ledger.is_row(sequence, computed):
                self.cohort.make_row(sequence, base)

    def fitting(self, most: int) -> int:
        """How many steps of theirs, at most `most`, the free blocks are enough for."""
        free, growth = self._ledger.pool.free, self.cohort.growth
        if most <= 0 or self.cohort.most_growth(most) <= free or growth(most) <= free:
            return max(0, most)
        low, high = 0, most
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if growth(middle) <= free else (low, middle)
        return low
