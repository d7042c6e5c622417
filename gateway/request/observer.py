"""What the request lifecycle tells whoever watches it (metrics, logs, traces, audit)."""

from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a running answer's move to another decode worker. `tokens`: of the answer until now; `numbers`: those
    behind the decision, bytes and seconds of both ways among them."""

    request_id: str
    why: str
    outcome: str
    by: str
    source: str
    target: str
    tokens: int
    numbers: Mapping[str, float]


class Observer(ClusterObserver, Protocol):
    """Called synchronously on the event loop: implementations must be quick and must not raise."""

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None: ...

    def refused(self, record: Record, error: RequestError) -> None:
        """A request ended as REJECTED; `ended` follows."""
        ...

    def handed_off(self, record: Record, handoff: Handoff) -> None: ...

    def moved(self, record: Record, moved: Moved) -> None:
        """A move is over, whatever became of it; its KV, if it was read, was also told of by `handed_off`."""
        ...

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

    def moved(self, record: Record, moved: Moved) -> None:
        pass

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        pass

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        pass

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        pass

    def ended(self, record: Record) -> None:
        pass
