"""Everything that `tandem status` and the metrics show of a cluster, as plain values."""

from dataclasses import dataclass

from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker. Block figures are the worker's own; `leases` and `sequences` are this gateway's."""

    worker_id: str
    epoch: str
    address: str
    role: Role
    status: WorkerStatus
    reason: str
    model: str
    engine: str
    engine_version: str
    device: str
    tp: int
    pp: int
    block_size_tokens: int
    blocks_total: int
    blocks_used: int
    blocks_reserved: int
    running: int
    waiting: int
    tickets_held: int
    reservations: int
    preemptions: int
    recomputed_tokens: int
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    step_time_s: float
    tickets_issued: int
    tickets_expired: int
    tickets_released: int
    failed_notifications: int
    state_age_s: float | None  # None: never heard of
    lease_reservations: int
    lease_prefills: int
    lease_tickets: int
    sequences: int
    outstanding_prompt_tokens: int
    consecutive_faults: int
    blocks_promised: float = 0.0  # in full, and by the forecast within the error budget
    overrun_risk: float = 0.0
    error_budget: float = 0.0  # of that chance, so much is accepted now; 0: not told
    pool_blocks: int = 0  # the emergency pool, part of the total
    pool_blocks_used: int = 0
    node: str = ""  # where it stands, as far as it was told
    rack: str = ""
    nvlink_domain: str = ""


@dataclass(frozen=True, slots=True)
class PairSnapshot:
    """One (prefill, decode) pair. Bytes, seconds and failures are the reader's own counters."""

    prefill_worker: str
    decode_worker: str
    state: PairState
    reason: str
    transport: str
    bytes_per_s: float
    handshake_s: float
    transfers: int
    bytes: int
    seconds: float
    failures: int
    distance: str = ""  # domain, node, rack or apart; empty where one of them does not say where it stands


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A configured or announced address where no worker has answered yet."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`mode` is "disaggregated", "colocated", "mixed", "local" (decode workers alone, by policy) or "none".

    `missing` says what keeps it from serving, and is empty when it serves.
    """

    gateway_id: str
    mode: str
    missing: str
    workers: tuple[WorkerSnapshot, ...]
    pairs: tuple[PairSnapshot, ...]
    in_flight: dict[str, int]  # requests by phase
    queued: int
    unreachable: tuple[Unreachable, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True)
class Integrity:
    """What one gateway holds. Every figure is zero at idle (invariant 3)."""

    requests: int
    queued: int
    reservations: int
    prefills: int
    tickets: int
    sequences: int
    cleanups: int
    overdue: tuple[str, ...]  # leases held past their deadline: a defect

    @property
    def idle(self) -> bool:
        return not (
            self.requests
            or self.queued
            or self.reservations
            or self.prefills
            or self.tickets
            or self.sequences
            or self.cleanups
        )
