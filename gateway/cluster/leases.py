"""What this gateway holds on workers. Load is the set of live leases, never a counter beside it (B-45)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class LeaseKind(StrEnum):
    RESERVATION = "reservation"  # KV blocks on a decode worker
    PREFILL = "prefill"  # a prompt in the hands of a prefill worker
    TICKET = "ticket"  # KV pinned on a prefill worker
    SEQUENCE = "sequence"  # an answer running on a decode worker


@dataclass(eq=False, slots=True)
class Lease:
    """One acquire with one owner, a deadline and a release. Compared by identity. `slots`: places in the batch that it
    takes, of a reservation one for each answer that has not ended."""

    kind: LeaseKind
    owner: str
    tokens: int
    blocks: int
    deadline_s: float
    slots: int = 0
    held: bool = True


class LeaseBook:
    """The live leases on one worker in one epoch.

    Between two state snapshots of the worker the book also remembers what was granted and given back since,
    so that free space can be judged without waiting for the next one. `changed` is told of whatever may change that,
    and the prompts in hand.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        returned: Callable[[Lease], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._returned = returned
        self._changed = changed
        self._live: dict[LeaseKind, set[Lease]] = {kind: set() for kind in LeaseKind}
        self._fresh: set[Lease] = set()  # reservations that the newest snapshot does not know
        self._asked: set[Lease] = set()  # reservations that the worker has not answered yet
        self._freed_blocks: list[int] = []  # of reservations that it still counts

    def __iter__(self) -> Iterator[Lease]:
        for leases in self._live.values():
            yield from leases

    def __len__(self) -> int:
        return sum(map(len, self._live.values()))

    def take(
        self, kind: LeaseKind, owner: str, *, ttl_s: float, tokens: int = 0, blocks: int = 0, slots: int = 0
    ) -> Lease:
        lease = Lease(kind, owner, tokens, blocks, self._clock() + ttl_s, slots)
        self._live[kind].add(lease)
        if kind is LeaseKind.RESERVATION:
            self._fresh.add(lease)
            self._asked.add(lease)
        self._changed()
        return lease

    def granted(self, lease: Lease, blocks: int) -> None:
        """The worker has said yes; from here on the phases' deadlines bound the reservation."""
        self._asked.discard(lease)
        lease.blocks = blocks
        lease.deadline_s = float("inf")
        self._changed()

    def computed(self, lease: Lease) -> None:
        """Its prompt keeps nobody waiting any more."""
        lease.tokens = 0
        self._changed()

    def answered(self, lease: Lease) -> None:
        """One answer of a reservation has ended; the others go on."""
        lease.slots = max(0, lease.slots - 1)
        self._changed()

    def give_back(self, lease: Lease, *, quiet: bool = False) -> bool:
        """Ends a lease; False when it had ended already, so that every exit path may call it.

        `quiet` is for a lease that was never granted: nobody need hear that room has come free.
        """
        if not lease.held:
            return False
        lease.held = False
        self._live[lease.kind].discard(lease)
        self._asked.discard(lease)
        if lease in self._fresh:
            self._fresh.discard(lease)
        elif lease.kind is LeaseKind.RESERVATION and not quiet:
            self._freed_blocks.append(lease.blocks)
        self._changed()
        if not quiet:
            self._returned(lease)
        return True

    def snapshot_arrived(self) -> None:
        """The worker's own figures now include everything before this moment."""
        self._fresh.clear()
        self._freed_blocks.clear()
        self._changed()

    @property
    def asked(self) -> bool:
        """Whether the worker is being asked for a reservation now."""
        return bool(self._asked)

    def count(self, kind: LeaseKind) -> int:
        return len(self._live[kind])

    def tokens(self, kind: LeaseKind) -> int:
        return sum([lease.tokens for lease in self._live[kind]])

    @property
    def slots(self) -> int:
        """Places in the worker's batch: promised ones, those that are asked for, and prompts that it computes for others."""
        return sum([lease.slots for lease in self._live[LeaseKind.RESERVATION]]) + self.count(LeaseKind.PREFILL)

    @property
    def unseen_blocks(self) -> int:
        """Blocks granted since the newest snapshot, less those given back: a correction to the worker's figures."""
        return sum([lease.blocks for lease in self._fresh]) - sum(self._freed_blocks)

    def overdue(self) -> list[Lease]:
        now_s = self._clock()
        return [lease for lease in self if lease.deadline_s < now_s]
