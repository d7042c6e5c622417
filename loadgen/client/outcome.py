"""From what the client saw to how the request ended."""

from array import array
from enum import Enum
from typing import Any

from loadgen.client.timeline import Timeline
from loadgen.result import Ending, Result
from loadgen.schedule import Planned

#: Statuses that refuse work; other 4xx and 5xx are failures, of the request or of the target.
_REJECTING = frozenset({400, 413, 422, 429, 503, 529})
_TIMING_OUT = frozenset({408, 504})
#: Codes in an error body or event that mean the same whatever the status.
_REJECTING_CODES = frozenset(
    {"queue_full", "queue_timeout", "kv_capacity", "context_length_exceeded", "no_prefill_worker", "no_decode_worker"}
    | {"draining", "rate_limit_exceeded", "overloaded", "overloaded_error"}
)
_TIMING_OUT_CODES = frozenset({"first_token_timeout", "idle_timeout", "request_timeout", "prefill_timeout"})


class Cut(Enum):
    """Why the client itself ended the exchange."""

    NONE = "none"
    TIMEOUT = "timeout"
    PATIENCE = "patience"
    PLAN = "plan"
    INTERRUPT = "interrupted"


def outcome(
    planned: Planned,
    timeline: Timeline,
    *,
    intended_s: float,
    sent_s: float,
    end_s: float,
    origin_s: float,
    cut: Cut = Cut.NONE,
    broken: str = "",
) -> Result:
    """All times on one clock; the result's are relative to `origin_s`."""
    ending, reason = _ending(timeline, cut, broken)
    tokens = timeline.tokens()
    d = planned.demand
    first = timeline.first_s
    return Result(
        index=planned.index,
        intended_s=intended_s - origin_s,
        sent_s=sent_s - origin_s,
        end_s=end_s - origin_s,
        ending=ending,
        reason=reason,
        status=timeline.status,
        first_s=None if first is None else first - origin_s,
        planned_prompt_tokens=d.prompt_tokens,
        planned_output_tokens=d.output_tokens,
        prompt_tokens=int(timeline.usage.get("prompt_tokens") or 0),
        cached_tokens=timeline.cached_tokens(),
        output_tokens=tokens.total,
        chunk_s=array("d", [t - origin_s for t in tokens.chunk_s]),
        chunk_tokens=tokens.chunk_tokens,
        tokens_from=tokens.source,
        finish=timeline.finish,
        tenant=d.tenant,
        klass=d.klass,
        session=d.session,
        turn=d.turn,
        stages_s=tuple(timeline.stages.items()),
    )


def _ending(timeline: Timeline, cut: Cut, broken: str) -> tuple[Ending, str]:
    if timeline.error is not None or (timeline.status and timeline.status != 200):
        return refused(timeline.status, timeline.error or {})
    match cut:
        case Cut.TIMEOUT:
            return Ending.TIMED_OUT, "timeout"
        case Cut.PATIENCE:
            return Ending.ABANDONED, "patience"
        case Cut.PLAN | Cut.INTERRUPT:
            return Ending.CANCELLED, cut.value
        case _:
            pass
    if broken:
        return Ending.FAILED, broken
    if timeline.first_s is None:
        return Ending.FAILED, "no_tokens"
    if not timeline.done and not timeline.finish:
        return Ending.FAILED, "stream_cut"
    return Ending.COMPLETED, ""


def refused(status: int, error: dict[str, Any]) -> tuple[Ending, str]:
    """Ending and reason of an answer with an error status, or with an error in its stream."""
    code = error.get("code")
    numeric = code if isinstance(code, int) else 0
    reason = str(code if isinstance(code, str) and code else error.get("type") or f"http_{numeric or status}")
    effective = status if status != 200 else numeric
    if code in _TIMING_OUT_CODES or effective in _TIMING_OUT:
        return Ending.TIMED_OUT, reason
    if code in _REJECTING_CODES or effective in _REJECTING:
        return Ending.REJECTED, reason
    return Ending.FAILED, reason
