"""One JSON line a request, from its account. No prompt, no answer, no key ever gets here: the account has none."""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.request.errors import Reason, RequestError
from gateway.request.observer import Moved
from gateway.request.phase import Phase
from gateway.request.record import Record

LOGGER = "tandem.requests"


def json_logger(name: str = LOGGER) -> FilteringBoundLogger:
    """Lines go through the standard logger `name`, so that the process decides where they end."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=lambda value, **_: orjson.dumps(value, default=str).decode()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    return logger


class RequestLog(SilentSurfaceObserver):
    """Ends of requests at info, what went wrong on the way at warning."""

    def __init__(self, name: str = LOGGER) -> None:
        self._log = json_logger(name)
        self._plain = logging.getLogger(name)

    def refused(self, record: Record, error: RequestError) -> None:
        self._log.warning(
            "request refused",
            request_id=record.request_id,
            reason=error.reason.value,
            numbers=error.numbers,
            policy=record.policy,
        )

    def moved(self, record: Record, moved: Moved) -> None:
        """Bytes and seconds of both ways are among the numbers."""
        self._log.info(
            "answer moved" if moved.outcome in ("moved", "recomputed") else "answer not moved",
            request_id=record.request_id,
            reason=moved.why,
            outcome=moved.outcome,
            by=moved.by,
            source=moved.source,
            target=moved.target,
            tokens=moved.tokens,
            numbers=dict(moved.numbers),
        )

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        self._log.warning("hand-off missing", request_id=record.request_id, worker=worker_id)

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        self._log.warning("ticket expired", request_id=record.request_id, worker=worker_id, age_s=round(age_s, 3))

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        self._log.warning(
            "leg retried", request_id=record.request_id, phase=phase.value, reason=reason.value, cause=message
        )

    def stream_broken(self, record: Record) -> None:
        self._log.warning("stream broken", request_id=record.request_id, reason=_value(record.reason))

    def ended(self, record: Record) -> None:
        """Written without the logger's chain of processors, in the same form: it comes once a request."""
        if self._plain.isEnabledFor(logging.INFO):
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            entry = {**line(record), "event": "request", "level": "info", "timestamp": now}
            self._plain.info(orjson.dumps(entry, default=str).decode())


def line(record: Record) -> dict[str, Any]:
    """Offsets are seconds since the request arrived."""

    def since(moment_s: float | None) -> float | None:
        return None if moment_s is None else round(moment_s - record.started_s, 6)

    return {
        "request_id": record.request_id,
        "client_request_id": record.client_id,
        "trace_id": record.trace.trace_id if record.trace else "",
        "tenant": record.tenant,
        "model": record.model,
        "policy": record.policy,
        "class": record.klass,
        "estimated_tokens": round(record.estimated_tokens, 1),
        "outcome": record.phase.value,
        "reason": _value(record.reason),
        "failed_phase": record.failed_phase.value if record.failed_phase else None,
        "path": record.path,
        "path_reason": record.path_reason,
        "prefill_worker": record.prefill_worker,
        "decode_worker": record.decode_worker,
        "transport": record.transport,
        "choices": record.choices,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens,
        "handoffs": record.handoffs,
        "retries": record.retries,
        "moves": record.moves,
        "capped": record.capped,
        "reserved_blocks": record.reserved_blocks,
        "kv_bytes": record.kv_bytes,
        "phases_s": {phase.value: since(moment_s) for phase, moment_s in record.entered_s.items()},
        "spent_s": {phase.value: round(seconds, 6) for phase, seconds in record.spent_s.items()},
        "prefill_queue_s": round(record.prefill_queue_s, 6),
        "prefill_compute_s": round(record.prefill_compute_s, 6),
        "transfer_s": round(record.transfer_s, 6),
        "decode_queue_s": round(record.decode_queue_s, 6),
        "first_token_s": since(record.first_token_s),
        "last_token_s": since(record.last_token_s),
        "total_s": since(record.ended_s),
    }


def _value(reason: Reason | None) -> str | None:
    return reason.value if reason else None
