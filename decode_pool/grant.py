"""One reservation of the ledger's."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from proto.reservation import ReserveRequest

if TYPE_CHECKING:
    from decode_pool.hold import Hold


class Charge(NamedTuple):
    """What a grant is charged in blocks. `certain` of them are outside of the forecast; `waiting` are not filled yet.

    `sequences` run under it, or may be started.
    """

    blocks: int = 0
    certain: int = 0
    waiting: int = 0
    sequences: int = 0


@dataclass(slots=True, eq=False)
class Grant:
    """`charged`: its `charge` as the ledger has counted it, but for what its sequences have `grown` since.
    `expected`: names of answers that may be started, if their growth is forecast and not reserved in full.

    Of a grant that is forecast, the book covers everything but a prefix that several answers share.
    """

    reservation_id: str
    request: ReserveRequest
    shared: int  # full blocks of the prompt, held once for all its answers
    share: int  # blocks that each answer may add; for a forecast one, that it needs to start
    ttl_s: float
    expires_s: float
    unstarted: int
    expected: list[str] = field(default_factory=list)
    forecast: bool = False
    closed: bool = False
    live: set["Hold"] = field(default_factory=set)
    charged: Charge = field(default_factory=Charge)
    grown: int = 0  # blocks

    @property
    def blocks(self) -> int:
        return self.shared + self.unstarted * self.share + sum([hold.blocks for hold in self.live])

    @property
    def charge(self) -> Charge:
        blocks, sequences = self.blocks, len(self.live) + self.unstarted
        if not self.forecast:
            return Charge(blocks, blocks, 0, sequences)
        lone = self.request.sequences <= 1
        waiting = self.unstarted * self.share + (self.shared if lone and not self.live else 0)
        return Charge(blocks, 0 if lone else self.shared, waiting, sequences)

    @property
    def over(self) -> bool:
        return not self.live and (self.closed or not self.unstarted)
