"""One running sequence's part of a reservation."""

from typing import TYPE_CHECKING

from decode_pool.grant import Grant

if TYPE_CHECKING:
    from decode_pool.ledger import Ledger


class Hold:
    """One running sequence's part of a reservation. `advance` is on the hot path."""

    __slots__ = ("_covered", "_grant", "_ledger", "blocks", "name", "tokens")

    def __init__(self, ledger: "Ledger", grant: Grant, tokens: int, name: str = "") -> None:
        self._ledger = ledger
        self._grant = grant
        self.name = name  # of the expected answer that this is; empty: its growth is reserved in full
        self.tokens = 0
        self.blocks = grant.share
        self._covered = (grant.shared + grant.share) * ledger.shape.block_size_tokens
        self.advance(tokens)

    @property
    def reservation_id(self) -> str:
        return self._grant.reservation_id

    def advance(self, tokens: int) -> None:
        """The sequence has grown; beyond its share it is charged what it really holds."""
        self.tokens += tokens
        self._ledger.expected.gained += tokens
        if self.tokens > self._covered:
            self._outgrow()

    def end(self, *, returned: bool = False, finished: bool = True, moves: bool = False) -> None:
        """Gives the blocks back. `returned`: nothing was answered, so the same reservation may be started again.

        `finished`: the answer came to its own end; one that was aborted says nothing about lengths, and
        neither does one that `moves`, to go on at another worker.
        """
        self._ledger._end(self, self._grant, returned=returned, finished=finished, moves=moves)

    def _outgrow(self) -> None:
        ledger, grant = self._ledger, self._grant
        size = ledger.shape.block_size_tokens
        blocks = -(-self.tokens // size) - grant.shared
        more, self.blocks = blocks - self.blocks, blocks
        self._covered = (grant.shared + blocks) * size
        if self in grant.live:
            ledger.charges.grew(grant, more)
