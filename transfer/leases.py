"""The leases that a writer has given out, as an explicit state machine. Pure: time is an argument."""

from dataclasses import dataclass
from enum import StrEnum

from proto.ticket import Ticket


class LeaseState(StrEnum):
    HELD = "held"
    RELEASED = "released"
    READ = "read"
    EXPIRED = "expired"


TRANSITIONS: dict[LeaseState, frozenset[LeaseState]] = {
    LeaseState.HELD: frozenset({LeaseState.RELEASED, LeaseState.READ, LeaseState.EXPIRED}),
    # A release that finds nothing to free: the reader had been there first.
    LeaseState.RELEASED: frozenset({LeaseState.READ}),
    LeaseState.READ: frozenset(),
    LeaseState.EXPIRED: frozenset(),
}


@dataclass(slots=True)
class Lease:
    """One ticket, who asked for it, and when it was issued."""

    ticket: Ticket
    request_id: str
    issued_s: float
    state: LeaseState = LeaseState.HELD

    @property
    def ends_s(self) -> float:
        return self.issued_s + self.ticket.lease_s - self.ticket.age_s

    def move(self, state: LeaseState) -> bool:
        """Makes a legal move; False (and nothing changes) for any other."""
        if state not in TRANSITIONS[self.state]:
            return False
        self.state = state
        return True


class Leases:
    """Every lease that may still hold KV, found by ticket or by the request that it was issued for.

    A lease that is over leaves the table; the totals remain.
    """

    def __init__(self) -> None:
        self._by_ticket: dict[str, Lease] = {}
        self._by_request: dict[str, Lease] = {}
        self.issued = 0
        self.totals: dict[LeaseState, int] = dict.fromkeys(LeaseState, 0)

    def __len__(self) -> int:
        return len(self._by_ticket)

    def issue(self, ticket: Ticket, request_id: str, now_s: float) -> Lease:
        lease = Lease(ticket, request_id, now_s)
        self._by_ticket[ticket.ticket_id] = lease
        self._by_request[request_id] = lease
        self.issued += 1
        return lease

    def find(self, ticket_id: str = "", request_id: str = "") -> Lease | None:
        return self._by_ticket.get(ticket_id) if ticket_id else self._by_request.get(request_id)

    def end(self, lease: Lease, state: LeaseState) -> bool:
        """Takes a lease to one of its ends; False when it had ended before (releasing twice is harmless)."""
        if not lease.move(state):
            return False
        self.totals[state] += 1
        self._by_ticket.pop(lease.ticket.ticket_id, None)
        if self._by_request.get(lease.request_id) is lease:
            del self._by_request[lease.request_id]
        return True

    def was_read(self, lease: Lease) -> None:
        """The release of a lease freed nothing, so a reader had come first."""
        if lease.state is LeaseState.RELEASED and lease.move(LeaseState.READ):
            self.totals[LeaseState.RELEASED] -= 1
            self.totals[LeaseState.READ] += 1

    def reconcile(self, now_s: float, held: int, expired: int, settle_s: float = 1.0) -> int:
        """Forgets leases that must be over, given that the engine holds `held` tickets and let `expired` lapse so far.

        The engine frees by its own clock, and readers may renew a lease with it; so a lease outlives its length here
        while the engine holds that many. Which ones a reader took cannot be told before nothing is held at all.
        """
        surplus = len(self) - held
        over = [lease for lease in self._by_ticket.values() if lease.ends_s <= now_s]
        if held == 0:
            over = [lease for lease in self._by_ticket.values() if lease.issued_s + settle_s <= now_s]
        lapsed = max(0, expired - self.totals[LeaseState.EXPIRED])
        over.sort(key=lambda lease: lease.ends_s)
        for number, lease in enumerate(over[: max(0, surplus)]):
            self.end(lease, LeaseState.EXPIRED if number < lapsed else LeaseState.READ)
        return min(len(over), max(0, surplus))
