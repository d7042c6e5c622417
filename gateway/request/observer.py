"""What the request lifecycle tells whoever watches it (metrics, logs, traces, audit)."""

from dataclasses import dataclass
from typing import Protocol

from gateway.cluster.observer import ClusterObserver, SilentClusterObserver
from gateway.request.errors import Reason, RequestError
from gateway.request.phase import Phase
from gateway.request.record import Record


@dataclass(frozen=True, slots=True)
class Handoff:
    """One prompt's KV that has arrived at the decode worker."""

    request_id: str
    prefill_worker: str
    decode_worker: str
    transport: str
    kv_bytes: int
    computed_tokens: int
    transfer_s: float
    ticket_age_s: float


class Observer(ClusterObserver, Protocol):
    """Called synchronously on the event loop: implementations must be quick and must not raise."""

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None: ...

    def refused(self, record: Record, error: RequestError) -> None:
        """A request ended as REJECTED; `ended` follows."""
        ...

    def handed_off(self, record: Record, handoff: Handoff) -> None: ...

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        """A prefill leg ended without hand-off parameters (B-10)."""
        ...

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        """A ticket was too old to dispatch and its prompt is prefilled again (B-31)."""
        ...

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        """A leg failed in `phase` and is tried once more, by policy."""
        ...

    def ended(self, record: Record) -> None:
        """The last call for every request that was opened, whatever its outcome."""
        ...


class SilentObserver(SilentClusterObserver):
    """Watches nothing; for tests and tools."""

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None:
        pass

    def refused(self, record: Record, error: RequestError) -> None:
        pass

    def handed_off(self, record: Record, handoff: Handoff) -> None:
        pass

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        pass

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        pass

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        pass

    def ended(self, record: Record) -> None:
        pass
