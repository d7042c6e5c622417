"""Where a request's time went, for headers and for clients that ask."""

from typing import Any

from gateway.request.phase import Phase
from gateway.request.record import Record

#: stage -> the phase it lasts
_STAGES = {
    "prepare": Phase.RECEIVED,
    "queue": Phase.QUEUED,
    "reserve": Phase.RESERVED,
    "prefill": Phase.PREFILLING,
    "handoff": Phase.HANDED_OFF,
}


def stages(record: Record) -> dict[str, float]:
    """Seconds in each phase that was left; a phase that a retry entered again counts with all its visits."""
    return {stage: record.spent_s[phase] for stage, phase in _STAGES.items() if phase in record.spent_s}


def server_timing(record: Record) -> str:
    parts = [f"{stage};dur={seconds * 1e3:.2f}" for stage, seconds in stages(record).items()]
    if record.transfer_s:
        parts.append(f"transfer;dur={record.transfer_s * 1e3:.2f}")
    if record.first_token_s is not None:
        parts.append(f"ttft;dur={(record.first_token_s - record.started_s) * 1e3:.2f}")
    return ", ".join(parts)


def route_headers(record: Record) -> list[tuple[bytes, bytes]]:
    """Facts, so they go out only once they are known (B-24)."""
    headers = [(b"server-timing", server_timing(record).encode("latin-1", "replace"))]
    if record.path:
        headers.append((b"x-tandem-path", record.path.encode("latin-1", "replace")))
    return [(name, value) for name, value in headers if value]


def breakdown(record: Record, now_s: float, *, names: bool) -> dict[str, Any]:
    """The `tandem` object of an answer whose client asked for it; with the `names` of workers for some."""
    first_s = record.first_token_s
    workers = {"prefill_worker": record.prefill_worker, "decode_worker": record.decode_worker}
    return {
        "request_id": record.request_id,
        "policy": record.policy,
        "class": record.klass,
        "estimated_tokens": round(record.estimated_tokens, 1),
        "path": record.path,
        "path_reason": record.path_reason,
        **(workers if names else {}),
        "transport": record.transport,
        "handoffs": record.handoffs,
        "retries": record.retries,
        "moves": record.moves,
        "kv_bytes": record.kv_bytes,
        "stages_s": {stage: round(seconds, 6) for stage, seconds in stages(record).items()},
        "prefill_queue_s": round(record.prefill_queue_s, 6),
        "prefill_compute_s": round(record.prefill_compute_s, 6),
        "transfer_s": round(record.transfer_s, 6),
        "decode_queue_s": round(record.decode_queue_s, 6),
        "ttft_s": None if first_s is None else round(first_s - record.started_s, 6),
        "total_s": round(now_s - record.started_s, 6),
    }
