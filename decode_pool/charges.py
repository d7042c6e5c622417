"""What all grants of a worker are charged together."""

from collections.abc import Callable
from dataclasses import dataclass

from decode_pool.grant import Charge, Grant


def _nobody_listens() -> None:
    pass


@dataclass(slots=True)
class Charges:
    """Sums that are kept, and not counted anew: every decision asks for them.

    `certain` blocks are outside of the forecast; of the others `waiting` are not filled yet. `freed` is called when a
    grant is charged less than before.
    """

    blocks: int = 0
    certain: int = 0
    waiting: int = 0
    sequences: int = 0
    freed: Callable[[], None] = _nobody_listens

    def charge(self, grant: Grant, charge: Charge) -> None:
        """From now on the grant is charged this."""
        before, grown = grant.charged, grant.grown
        grant.charged, grant.grown = charge, 0
        less = charge.blocks < before.blocks + grown
        self.blocks += charge.blocks - before.blocks - grown
        self.certain += charge.certain - before.certain - (0 if grant.forecast else grown)
        self.waiting += charge.waiting - before.waiting
        self.sequences += charge.sequences - before.sequences
        if less:
            self.freed()

    def grew(self, grant: Grant, more: int) -> None:
        """One of its sequences holds so many blocks more; on the hot path."""
        grant.grown += more
        self.blocks += more
        if not grant.forecast:
            self.certain += more
