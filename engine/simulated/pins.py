"""KV kept for a reader after its request has ended: leases, without I/O or a clock of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from engine.simulated.sequence import Sequence


class PinState(StrEnum):
    HELD = "held"
    READING = "reading"


class Refused(StrEnum):
    """Why a reader does not get what its ticket names."""

    UNKNOWN = "unknown"
    STALE = "stale"
    EXPIRED = "expired"


@dataclass(slots=True)
class Pin:
    """One ticket's KV. `state_digest` stands for the content: a reader continues from it."""

    ticket_id: str
    sequence: Sequence
    computed_tokens: int
    blocks: int
    state_digest: int
    deadline_s: float
    renewable: bool = True
    state: PinState = PinState.HELD


class Pins:
    """All pins of one engine. Every way out of here frees the blocks exactly once, through `free`."""

    def __init__(self, epoch: str, lease_s: float, free: Callable[[Sequence], None]) -> None:
        self.epoch = epoch
        self.lease_s = lease_s
        self._free = free
        self._held: dict[str, Pin] = {}
        self._expired: dict[str, None] = {}
        self.expired_total = 0

    def __len__(self) -> int:
        return len(self._held)

    def pin(self, pin: Pin) -> None:
        self._held[pin.ticket_id] = pin

    def find(self, ticket_id: str, epoch: str, now_s: float) -> Pin | Refused:
        if epoch != self.epoch:
            return Refused.STALE
        self.expire(now_s)
        pin = self._held.get(ticket_id)
        if pin is not None:
            return pin
        return Refused.EXPIRED if ticket_id in self._expired else Refused.UNKNOWN

    def renew(self, pin: Pin, now_s: float) -> None:
        if pin.renewable:
            pin.deadline_s = now_s + self.lease_s

    def release(self, ticket_id: str) -> bool:
        """The reader is done, or nobody will read; False when there was nothing to free."""
        pin = self._held.pop(ticket_id, None)
        if pin is None:
            return False
        self._free(pin.sequence)
        return True

    def expire(self, now_s: float) -> int:
        """Frees what is past its lease, read or not: a reader that is too slow reads what is no longer there."""
        late = [pin for pin in self._held.values() if pin.deadline_s <= now_s]
        for pin in late:
            self.release(pin.ticket_id)
            self._expired[pin.ticket_id] = None
            self.expired_total += 1
        while len(self._expired) > 4096:
            del self._expired[next(iter(self._expired))]
        return len(late)

    def next_deadline_s(self) -> float | None:
        return min((pin.deadline_s for pin in self._held.values()), default=None)

    @property
    def reading(self) -> int:
        return sum(1 for pin in self._held.values() if pin.state is PinState.READING)

    def clear(self) -> None:
        for ticket_id in list(self._held):
            self.release(ticket_id)
