"""One worker in one epoch, as this gateway knows it."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.cluster.attachment import Attachment
from gateway.cluster.client import WorkerClient
from gateway.cluster.health import Health, Moved
from gateway.cluster.leases import Lease, LeaseBook, LeaseKind
from gateway.cluster.states import WorkerStatus
from gateway.config import HealthConfig
from gateway.policy.distance import placed
from gateway.policy.prefix import PrefixIndex
from gateway.policy.routing import DecodeCandidate, PrefillCandidate
from gateway.policy.standing import Door, PrefillSpeed
from proto.reservation import Refusal
from proto.worker import Role, WorkerInfo, WorkerState

#: Something that a worker must be told so that it frees what we held there.
Release = Callable[[WorkerClient], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Connection:
    """How to talk to a worker; a new one after every loss."""

    client: WorkerClient
    attachment: Attachment


def _nobody_looks() -> None:
    pass


class Worker:
    """Facts and leases of one epoch. A new epoch is a new object; a mere reconnect is not.

    `touched` is called with every change of what its candidates are made of, but for a closed door that opens with time.
    """

    def __init__(
        self,
        info: WorkerInfo,
        address: str,
        config: HealthConfig,
        clock: Callable[[], float],
        moved: Moved,
        changed: Callable[[], None],
    ) -> None:
        self.touched: Callable[[], None] = _nobody_looks
        self.info = info
        self.address = address
        self.state: WorkerState | None = None
        self.health = Health(config, clock, moved)
        self.leases = LeaseBook(clock, lambda _: self._lease_returned(), lambda: self.touched())
        self.prefix = PrefixIndex(info.blocks_total, info.block_size_tokens)
        self.connection: Connection | None = None
        self.owed: list[Release] = []  # not heard; said again until they are, in another epoch they are void
        self._speed = PrefillSpeed()
        self._clock = clock
        self._changed = changed
        self._blocks_total = info.blocks_total
        self._blocks_taken = 0
        self._headroom: float | None = None
        self._others_slots = 0  # places in its batch that other gateways' work takes
        self._door = Door()
        self._placed = placed(info.topology)

    @property
    def worker_id(self) -> str:
        return self.info.worker_id

    @property
    def role(self) -> Role:
        """The newest word counts: roles change while running."""
        return self.state.role if self.state else self.info.role

    @property
    def status(self) -> WorkerStatus:
        return self.health.status

    @property
    def ready(self) -> bool:
        return self.health.status is WorkerStatus.READY and self.connection is not None

    @property
    def shared(self) -> bool:
        """Whether other gateways hold reservations there, as far as its newest word tells."""
        state = self.state
        return state is not None and state.reservations > self.leases.count(LeaseKind.RESERVATION)

    def heard(self, state: WorkerState) -> None:
        self.state = state
        # A worker that has reserved KV and promised nothing is older than promises: its growth is not known.
        silent = state.blocks_reserved > 0 and not state.blocks_promised
        self._headroom = None if silent else max(0, state.blocks_total - state.pool_blocks) - state.blocks_promised
        mine = self.leases.count(LeaseKind.SEQUENCE) + self.leases.count(LeaseKind.PREFILL)
        self._others_slots = max(0, state.sequences - mine) if state.attached_gateways > 1 else 0
        self._facts(state.blocks_total, max(state.blocks_used, state.blocks_reserved))
        self.health.heard(state)
        self._changed()

    def refused(self, refusal: Refusal, asked: Lease) -> None:
        """A refusal carries the freshest figures there are; until they change the worker is not asked again."""
        self._headroom = self.headroom_blocks  # of the forecast it says nothing new
        self._facts(refusal.blocks_total, max(refusal.blocks_used, refusal.blocks_reserved))
        self.not_granted(asked)

    def not_granted(self, asked: Lease) -> None:
        """Asked for room in vain; not again before something has changed or `REOPEN_S` have passed."""
        self.leases.give_back(asked, quiet=True)
        self._door.refused(self._clock())
        self.touched()

    def has_cached(self, hashes: Sequence[int]) -> None:
        """It has just computed or received these blocks."""
        self.prefix.insert(hashes)
        self.touched()

    def prefilled(self, tokens: int, seconds: float) -> None:
        self._speed.measured(tokens, seconds, self._clock())
        self.touched()

    @property
    def blocks_free(self) -> int:
        """By max(engine-reported, reserved) and what this gateway has granted or returned since (B-54)."""
        return self._blocks_total - self._blocks_taken - self.leases.unseen_blocks

    @property
    def headroom_blocks(self) -> float | None:
        """What growth leaves by the worker's own forecast, less what this gateway has been promised since."""
        return None if self._headroom is None else self._headroom - self.leases.unseen_blocks

    def as_decode(self, cached_tokens: int) -> DecodeCandidate:
        info, state = self.info, self.state
        unseen = self.leases.unseen_blocks  # once: every turn comes by here for those that have changed
        return DecodeCandidate(
            worker_id=info.worker_id,
            role=state.role if state else info.role,
            window=info.max_model_len,
            block_size_tokens=info.block_size_tokens,
            blocks_total=self._blocks_total,
            blocks_free=self._blocks_total - self._blocks_taken - unseen,
            slots_total=info.max_num_seqs,
            cached_tokens=cached_tokens,
            closed=self._door.closed(self._clock()),
            headroom_blocks=None if self._headroom is None else self._headroom - unseen,
            asked=self.leases.asked,
            pool_blocks=state.pool_blocks if state else 0,
            slots_free=info.max_num_seqs - self.leases.slots - self._others_slots,
            placed=self._placed,
        )

    def as_prefill(self) -> PrefillCandidate:
        outstanding = self.leases.tokens(LeaseKind.PREFILL)
        return PrefillCandidate(self.worker_id, self.role, outstanding, self._speed.tokens_per_s)

    def _facts(self, blocks_total: int, blocks_taken: int) -> None:
        self._blocks_total = blocks_total or self.info.blocks_total
        self._blocks_taken = blocks_taken
        self._door.changed()
        self.leases.snapshot_arrived()

    def _lease_returned(self) -> None:
        self._door.changed()
        self._changed()
