"""One request as spans: who is whose parent, when, and what is told of it."""

import base64
import copy
import json
from typing import Any

import pytest

from gateway.observe.tracing.spans import document, spans_of
from gateway.request.errors import Reason
from gateway.request.phase import Phase
from gateway.request.record import Record
from gateway.request.trace import Trace

TRACE = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)


def record(
    trace: Trace | None = TRACE, end: Phase = Phase.DONE, request_id: str = "3f9a1c0d2b4e5f60718293a4"
) -> Record:
    made = Record(request_id, "m", "acme", prompt_tokens=5, choices=1, started_s=100.0, client_id="mine", trace=trace)
    for phase, moment_s in (
        (Phase.QUEUED, 100.25),
        (Phase.RESERVED, 100.5),
        (Phase.PREFILLING, 101.0),
        (Phase.HANDED_OFF, 101.5),
        (Phase.DECODING, 102.0),
    ):
        made.enter(phase, moment_s)
    made.first_token_s, made.completion_tokens, made.cached_tokens = 101.5, 7, 3
    made.path, made.estimated_tokens = "remote", 9.5
    made.enter(end, 104.0)
    return made


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_the_request_is_the_parent_of_its_phases_and_the_child_of_who_asked() -> None:
    root, *phases = spans_of(record(), epoch_s=1_000_000.0)
    assert {span["traceId"] for span in (root, *phases)} == {TRACE.trace_id}
    assert root["parentSpanId"] == TRACE.span_id
    assert {span["parentSpanId"] for span in phases} == {root["spanId"]}
    assert len({span["spanId"] for span in (root, *phases)}) == 6
    assert (root["startTimeUnixNano"], root["endTimeUnixNano"]) == ("1000100000000000", "1000104000000000")
    assert [(span["name"], span["startTimeUnixNano"], span["endTimeUnixNano"]) for span in phases] == [
        ("tandem.queued", "1000100250000000", "1000100500000000"),
        ("tandem.reserved", "1000100500000000", "1000101000000000"),
        ("tandem.prefilling", "1000101000000000", "1000101500000000"),
        ("tandem.handed_off", "1000101500000000", "1000102000000000"),
        ("tandem.decoding", "1000102000000000", "1000104000000000"),
    ]
    assert root["events"] == [{"timeUnixNano": "1000101500000000", "name": "first token"}]
    told = attributes(root)
    assert (told["tandem.request_id"], told["tandem.client_request_id"]) == ("3f9a1c0d2b4e5f60718293a4", "mine")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == ("5", "7")
    assert told["tandem.estimated_tokens"] == 9.5
    assert "error.type" not in told
    assert "status" not in root


def test_an_answer_that_moved_has_a_span_for_each_place_and_none_is_longer_than_it_was() -> None:
    made = Record("3f9a1c0d2b4e5f60718293a4", "m", "", prompt_tokens=5, choices=1, started_s=0.0)
    for phase, moment_s in (
        (Phase.QUEUED, 0.0),
        (Phase.RESERVED, 0.1),
        (Phase.PREFILLING, 0.2),
        (Phase.HANDED_OFF, 0.3),
        (Phase.DECODING, 0.4),
        (Phase.RESERVED, 3.0),
        (Phase.DECODING, 3.5),
        (Phase.DONE, 12.0),
    ):
        made.enter(phase, moment_s)
    _, *phases = spans_of(made, epoch_s=0.0)
    lasted = [(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9 for span in phases]
    names = ["queued", "reserved", "prefilling", "handed_off", "decoding", "reserved", "decoding"]
    assert [span["name"] for span in phases] == [f"tandem.{name}" for name in names]
    assert lasted == pytest.approx([0.1, 0.1, 0.1, 0.1, 2.6, 0.5, 8.5])


def test_a_trace_of_the_gateways_own_begins_with_the_requests_id() -> None:
    roots = [next(spans_of(record(trace=None), 0.0)) for _ in range(2)]
    assert all(root["traceId"].startswith("3f9a1c0d2b4e5f60718293a4") and len(root["traceId"]) == 32 for root in roots)
    assert roots[0]["traceId"] != roots[1]["traceId"]
    assert "parentSpanId" not in roots[0]


@pytest.mark.parametrize("end", [Phase.FAILED, Phase.REJECTED, Phase.CANCELLED])
def test_only_what_failed_is_an_error(end: Phase) -> None:
    made = record(end=end)
    made.reason = Reason.WORKER_LOST
    root = next(spans_of(made, 0.0))
    assert ("status" in root) is (end is Phase.FAILED)
    assert attributes(root)["error.type"] == "worker_lost"
    assert attributes(root)["tandem.outcome"] == end.value


def test_a_request_that_was_refused_at_the_door_is_one_span() -> None:
    made = Record("3f9a1c0d2b4e5f60718293a4", "m", "", prompt_tokens=0, choices=0, started_s=1.0)
    made.enter(Phase.REJECTED, 1.5)
    assert [span["name"] for span in spans_of(made, 0.0)] == ["tandem.request"]


def test_collectors_understand_it() -> None:
    """By OpenTelemetry's own description, which comes with vLLM. In JSON ids are hexadecimal, unlike other bytes."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    sent = json.loads(json.dumps(document([record(), record(None, Phase.FAILED)], 1e9, "tandem")))
    readable = copy.deepcopy(sent)
    spans = readable["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in spans:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    parsed = json_format.ParseDict(readable, service.ExportTraceServiceRequest())
    first = parsed.resource_spans[0].scope_spans[0].spans[0]
    assert first.trace_id.hex() == TRACE.trace_id
    assert first.end_time_unix_nano - first.start_time_unix_nano == 4_000_000_000
    assert parsed.resource_spans[0].resource.attributes[0].value.string_value == "tandem"
