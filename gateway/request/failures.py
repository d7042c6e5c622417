"""What a failed leg means: the reason a client would see, whether to try again, and whose fault it was."""

from gateway.cluster.client import WorkerLostError
from gateway.request.errors import Reason, RequestError
from gateway.request.merge import MergeError
from gateway.request.phase import Phase
from proto.fault import Fault, FaultError, FaultKind

#: Faults of the way between two workers rather than of either.
PAIR_FAULTS = frozenset({FaultKind.KV_LOAD_FAILED, FaultKind.PAIR_INCOMPATIBLE})

#: The request is at fault: trying again elsewhere would only fail again (B-38).
_FINAL: dict[FaultKind, Reason] = {
    FaultKind.INVALID_REQUEST: Reason.INVALID_REQUEST,
    FaultKind.CONTEXT_LENGTH: Reason.CONTEXT_LENGTH,
    FaultKind.KV_CAPACITY: Reason.KV_CAPACITY,
}
_BUSY = frozenset({FaultKind.OVERLOADED, FaultKind.DRAINING, FaultKind.WRONG_ROLE})
_HANDOFF = PAIR_FAULTS | {
    FaultKind.TICKET_EXPIRED,
    FaultKind.TICKET_STALE,
    FaultKind.TICKET_BOUNDARY,
    FaultKind.HANDOFF_MISSING,
}

_BUSY_RETRY_AFTER_S = 1.0


class LegFailure(Exception):  # noqa: N818 - a failure may still become a retry; RequestError is the error
    """One leg failed on `worker_id`. `fault` is None for a missed deadline and for a lost worker.

    `tokens` counts what a decode leg had given before it failed.
    """

    def __init__(
        self,
        phase: Phase,
        reason: Reason,
        message: str,
        worker_id: str,
        fault: Fault | None = None,
        tokens: int = 0,
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.reason = reason
        self.message = message
        self.worker_id = worker_id
        self.fault = fault
        self.tokens = tokens

    @property
    def of_the_way(self) -> bool:
        """The KV did not arrive, which is neither worker's failure alone; the reservation is still good."""
        return self.fault is not None and self.fault.kind in _HANDOFF

    @property
    def place_lost(self) -> bool:
        """The worker has ended the reservation; it may well grant another."""
        return self.fault is not None and self.fault.kind is FaultKind.RESERVATION_UNKNOWN

    @property
    def retryable(self) -> bool:
        return self.fault is None or self.fault.kind not in _FINAL

    def error(self) -> RequestError:
        busy = self.reason in (Reason.NO_PREFILL_WORKER, Reason.NO_DECODE_WORKER)
        return RequestError(
            self.reason,
            self.message,
            retry_after_s=_BUSY_RETRY_AFTER_S if busy else None,
            numbers=self.fault.numbers if self.fault else None,
        )


def prefill_failure(error: Exception, worker_id: str, deadline_s: float) -> LegFailure:
    return _failure(
        error,
        Phase.PREFILLING,
        worker_id,
        busy=Reason.NO_PREFILL_WORKER,
        broken=Reason.PREFILL_FAILED,
        late=(Reason.PREFILL_TIMEOUT, f"prefill on {worker_id} took longer than {deadline_s:g} s"),
    )


def decode_failure(error: Exception, worker_id: str, late: tuple[Reason, str]) -> LegFailure:
    """`late` says which deadline a TimeoutError means."""
    return _failure(
        error, Phase.DECODING, worker_id, busy=Reason.NO_DECODE_WORKER, broken=Reason.DECODE_FAILED, late=late
    )


def _failure(
    error: Exception, phase: Phase, worker_id: str, *, busy: Reason, broken: Reason, late: tuple[Reason, str]
) -> LegFailure:
    match error:
        case FaultError(fault=fault):
            reason = _FINAL.get(fault.kind) or _reason(fault.kind, busy, broken)
            message = fault.message if fault.kind in _FINAL else f"{phase} on {worker_id} failed: {fault.message}"
            return LegFailure(phase, reason, message, worker_id, fault)
        case WorkerLostError():
            return LegFailure(
                phase, Reason.WORKER_LOST, f"worker {worker_id} was lost while {phase}: {error}", worker_id
            )
        case TimeoutError():
            return LegFailure(phase, late[0], late[1], worker_id)
        case MergeError():
            fault = Fault(FaultKind.INTERNAL, str(error))
            return LegFailure(phase, broken, f"{phase} on {worker_id} failed: {error}", worker_id, fault)
        case _:
            raise error


def _reason(kind: FaultKind, busy: Reason, broken: Reason) -> Reason:
    if kind in _BUSY:
        return busy
    return Reason.HANDOFF_FAILED if kind in _HANDOFF else broken
