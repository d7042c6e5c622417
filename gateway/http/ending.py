"""Ends the account of a request that never reached the lifecycle."""

from gateway.observe.surface_observer import SurfaceObserver
from gateway.request.errors import REJECTIONS, Reason, RequestError
from gateway.request.phase import Phase
from gateway.request.record import Record


def end_early(observer: SurfaceObserver, record: Record, error: RequestError | None, now_s: float) -> None:
    """`error` None: the client left."""
    before = record.phase
    record.failed_phase = before
    if error is None:
        record.reason, after = Reason.CLIENT_GONE, Phase.CANCELLED
    else:
        refused = error.status < 500 or error.reason in REJECTIONS
        record.reason, after = error.reason, Phase.REJECTED if refused else Phase.FAILED
    record.enter(after, now_s)
    observer.phase_changed(record, before, after, now_s)
    if error is not None and after is Phase.REJECTED:
        observer.refused(record, error)
    observer.ended(record)
