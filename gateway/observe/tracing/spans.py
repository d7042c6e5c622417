"""The account of a request as OTLP spans: one for the request, one for each phase that it was in. Pure, but for new ids."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.http.version import VERSION
from gateway.request.phase import FINAL, Phase
from gateway.request.record import Record

_SERVER, _INTERNAL = 2, 1  # kinds of spans
_ERROR = 2  # of a status
#: Of a request id: a trace of the gateway's own begins with it, so that one is found by the other.
_ID_LENGTH = 24

Attribute = str | int | float


def document(records: Iterable[Record], epoch_s: float, service: str) -> dict[str, Any]:
    """Of an ExportTraceServiceRequest in JSON. `epoch_s`: the wall clock when the records' clock was 0."""
    scope = {"name": "tandem.gateway", "version": VERSION}
    spans = [span for record in records for span in spans_of(record, epoch_s)]
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service, "service.version": VERSION})},
                "scopeSpans": [{"scope": scope, "spans": spans}],
            }
        ]
    }


def spans_of(record: Record, epoch_s: float) -> Iterator[dict[str, Any]]:
    """`record` has ended. A phase that was entered again (a retry, a move) has a span for each time."""

    def nanoseconds(moment_s: float) -> str:
        return str(round((epoch_s + moment_s) * 1e9))

    trace_id, span_id = _trace_id(record), os.urandom(8).hex()
    end_s = record.started_s if record.ended_s is None else record.ended_s
    root: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": "tandem.request",
        "kind": _SERVER,
        "startTimeUnixNano": nanoseconds(record.started_s),
        "endTimeUnixNano": nanoseconds(end_s),
        "attributes": _attributes(_facts(record)),
    }
    if record.trace is not None:
        root["parentSpanId"] = record.trace.span_id
    if record.first_token_s is not None:
        root["events"] = [{"timeUnixNano": nanoseconds(record.first_token_s), "name": "first token"}]
    if record.phase is Phase.FAILED:  # who was refused or went away has met no fault of ours
        root["status"] = {"code": _ERROR, "message": record.reason.value if record.reason else ""}
    yield root
    ends = [*(moment_s for _, moment_s in record.visits[1:]), end_s]
    for (phase, began_s), ended_s in zip(record.visits, ends, strict=False):
        if phase not in FINAL:
            yield {
                "traceId": trace_id,
                "spanId": os.urandom(8).hex(),
                "parentSpanId": span_id,
                "name": f"tandem.{phase.value}",
                "kind": _INTERNAL,
                "startTimeUnixNano": nanoseconds(began_s),
                "endTimeUnixNano": nanoseconds(ended_s),
            }


def _trace_id(record: Record) -> str:
    if record.trace is not None:
        return record.trace.trace_id
    known = record.request_id if len(record.request_id) == _ID_LENGTH else ""
    return known + os.urandom((32 - len(known)) // 2).hex()


def _facts(record: Record) -> dict[str, Attribute]:
    """Those that are there; names of OpenTelemetry's own where it has some."""
    facts: dict[str, Attribute | None] = {
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "error.type": record.reason.value if record.reason else "",
        "tandem.request_id": record.request_id,
        "tandem.client_request_id": record.client_id,
        "tandem.tenant": record.tenant,
        "tandem.class": record.klass,
        "tandem.policy": record.policy,
        "tandem.outcome": record.phase.value,
        "tandem.path": record.path,
        "tandem.prefill_worker": record.prefill_worker,
        "tandem.decode_worker": record.decode_worker,
        "tandem.transport": record.transport,
        "tandem.cached_tokens": record.cached_tokens,
        "tandem.estimated_tokens": record.estimated_tokens,
        "tandem.kv_bytes": record.kv_bytes,
        "tandem.retries": record.retries,
        "tandem.moves": record.moves,
        "tandem.prefill_queue_s": record.prefill_queue_s,
        "tandem.prefill_compute_s": record.prefill_compute_s,
        "tandem.transfer_s": record.transfer_s,
        "tandem.decode_queue_s": record.decode_queue_s,
    }
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _attributes(values: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Attribute) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
