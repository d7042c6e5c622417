"""Answers fed byte by byte with told times: every figure is exact."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from loadgen.client.outcome import Cut, outcome
from loadgen.client.sse import EventReader
from loadgen.client.stages import stages_of
from loadgen.client.timeline import Timeline
from loadgen.demand import Demand
from loadgen.result import Ending, Result
from loadgen.schedule import Planned

DONE = b"data: [DONE]\n\n"
STREAM = {"content-type": "text/event-stream; charset=utf-8"}


def _event(**data: Any) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _chat(delta: dict[str, Any], finish: str | None = None, used: int | None = None) -> bytes:
    usage = {} if used is None else {"usage": {"prompt_tokens": 10, "completion_tokens": used}}
    return _event(choices=[{"delta": delta, "finish_reason": finish}], **usage)


def _text(text: str, finish: str | None = None, used: int | None = None) -> bytes:
    usage = {} if used is None else {"usage": {"prompt_tokens": 10, "completion_tokens": used}}
    return _event(choices=[{"text": text, "finish_reason": finish}], **usage)


def _usage(used: int) -> bytes:
    return _event(choices=[], usage={"prompt_tokens": 10, "completion_tokens": used})


def _run(
    parts: Sequence[tuple[float, bytes]], status: int = 200, headers: dict[str, str] = STREAM, cut: Cut = Cut.NONE
) -> Result:
    timeline = Timeline()
    timeline.head(status, headers, 0.0)
    for at, data in parts:
        timeline.body(data, at)
    end = parts[-1][0] if parts else 0.0
    timeline.end(end)
    planned = Planned(0, 0.0, Demand(10, 3))
    return outcome(planned, timeline, intended_s=100, sent_s=100, end_s=end, origin_s=100, cut=cut)


def test_b67_first_token_is_the_first_content_not_the_role() -> None:
    r = _run(
        [
            (100.1, _chat({"role": "assistant", "content": ""})),
            (100.5, _chat({"content": "a"})),
            (100.7, _chat({"content": "b"})),
            (100.9, _chat({}, "length") + _usage(2) + DONE),
        ]
    )
    assert r.ending is Ending.COMPLETED
    assert r.ttft_s == pytest.approx(0.5)
    assert r.tpot_s == pytest.approx(0.4)
    assert r.e2e_s == pytest.approx(0.9)
    assert r.token_gaps_s().tolist() == pytest.approx([0.2])
    assert (r.output_tokens, r.prompt_tokens, r.tokens_from) == (2, 10, "chunks")


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"refusal": "no"},
    ],
)
def test_b67_reasoning_and_tool_deltas_are_content(delta: dict[str, Any]) -> None:
    r = _run([(100.2, _chat({"role": "assistant"})), (100.3, _chat(delta)), (100.4, _chat({}, "stop") + DONE)])
    assert r.ttft_s == pytest.approx(0.3)


def test_running_counts_tell_how_many_tokens_a_chunk_carries() -> None:
    r = _run(
        [
            (100.1, _text("ab", used=2)),
            (100.2, _text("", used=3)),  # half a character: the token shows with the next text
            (100.4, _text("cd", used=5)),
            (100.5, _text("", finish="stop", used=6)),  # the end token
            (100.6, _usage(6) + DONE),
        ]
    )
    assert list(r.chunk_tokens) == [2, 3, 1]
    assert r.token_gaps_s().tolist() == pytest.approx([0, 0.3, 0, 0, 0.1])
    assert r.output_tokens == 6
    assert r.tokens_from == "continuous"
    assert r.tpot_s == pytest.approx(0.1)


def test_a_second_piece_of_one_token_is_not_another_token() -> None:
    r = _run([(100.1, _text("a", used=1)), (100.2, _text("b", used=1)), (100.3, _text("c", "length", 2) + DONE)])
    assert list(r.chunk_tokens) == [1, 1]
    assert list(r.chunk_s) == pytest.approx([0.1, 0.3])


def test_without_running_counts_the_total_is_shared_out_by_length() -> None:
    r = _run([(100.1, _text("aaaa")), (100.2, _text("bbbbbbbb")), (100.3, _text("", "length") + _usage(6) + DONE)])
    assert list(r.chunk_tokens) == [2, 4]
    assert (r.output_tokens, r.tokens_from) == (6, "spread")


def test_an_unseen_end_token_came_with_the_finish() -> None:
    r = _run([(100.1, _text("a")), (100.2, _text("b")), (100.5, _text("", "stop") + _usage(3) + DONE)])
    assert r.token_gaps_s().tolist() == pytest.approx([0.1, 0.3])
    assert r.tokens_from == "chunks"


def test_fewer_tokens_than_chunks_is_a_guess() -> None:
    r = _run([(100.1, _text("a")), (100.2, _text("b")), (100.3, _text("c", "length") + _usage(2) + DONE)])
    assert (r.output_tokens, r.tokens_from, len(r.chunk_s)) == (2, "spread", 2)


def test_b68_a_stream_without_a_token_failed() -> None:
    r = _run([(100.1, _chat({"role": "assistant", "content": ""})), (100.2, _chat({}, "stop") + _usage(0) + DONE)])
    assert (r.ending, r.reason, r.ttft_s) == (Ending.FAILED, "no_tokens", None)


def test_a_stream_that_just_ends_failed() -> None:
    r = _run([(100.1, _text("a"))])
    assert (r.ending, r.reason) == (Ending.FAILED, "stream_cut")


def test_an_error_event_after_tokens_is_a_failure() -> None:
    r = _run([(100.1, _text("a")), (100.2, _event(error={"message": "x", "code": "decode_failed"}))])
    assert (r.ending, r.reason) == (Ending.FAILED, "decode_failed")


@pytest.mark.parametrize(
    ("status", "body", "ending", "reason"),
    [
        (429, {"error": {"code": "queue_full", "message": "m"}}, Ending.REJECTED, "queue_full"),
        (503, {"error": {"code": None, "type": "overloaded"}}, Ending.REJECTED, "overloaded"),
        (503, {}, Ending.REJECTED, "http_503"),
        (400, {"error": {"code": "context_length_exceeded"}}, Ending.REJECTED, "context_length_exceeded"),
        (
            400,
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            Ending.REJECTED,
            "BadRequestError",
        ),
        (500, {"error": "boom"}, Ending.FAILED, "http_500"),
        (401, {"error": {"code": "invalid_api_key"}}, Ending.FAILED, "invalid_api_key"),
        (504, {"error": {"code": "first_token_timeout"}}, Ending.TIMED_OUT, "first_token_timeout"),
        (502, {"error": {"code": "prefill_failed"}}, Ending.FAILED, "prefill_failed"),
    ],
)
def test_statuses_are_classed_with_their_reason(status: int, body: Any, ending: Ending, reason: str) -> None:
    r = _run([(100.1, orjson.dumps(body))], status, {"content-type": "application/json"})
    assert (r.ending, r.reason, r.status) == (ending, reason, status)


def test_refusals_inside_a_stream_count_as_refusals() -> None:
    r = _run([(100.1, _event(error={"message": "full", "code": 429}))])
    assert (r.ending, r.reason) == (Ending.REJECTED, "http_429")


@pytest.mark.parametrize(
    ("cut", "ending"),
    [
        (Cut.TIMEOUT, Ending.TIMED_OUT),
        (Cut.PATIENCE, Ending.ABANDONED),
        (Cut.PLAN, Ending.CANCELLED),
        (Cut.INTERRUPT, Ending.CANCELLED),
    ],
)
def test_the_clients_own_cuts_are_classed(cut: Cut, ending: Ending) -> None:
    assert _run([(100.1, _text("a"))], cut=cut).ending is ending


def test_a_refusal_counts_as_such_even_when_the_client_left_too() -> None:
    body = orjson.dumps({"error": {"code": "queue_full"}})
    assert _run([(100.1, body)], 429, {}, Cut.PLAN).ending is Ending.REJECTED


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_survive_any_cutting(size: int) -> None:
    text = b'data: {"a": 1}\n\n: comment\r\ndata:x\r\ndata: y\r\n\r\nevent: z\ndata: [DONE]\n\n'
    reader = EventReader()
    events = [e for i in range(0, len(text), size) for e in reader.feed(text[i : i + size])]
    assert events == [b'{"a": 1}', b"x\ny", b"[DONE]"]


def test_an_event_without_its_blank_line_counts_at_the_end() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n\ndata: [DONE]") == [b"a"]
    assert reader.end() == [b"[DONE]"]


def test_stages_add_up_to_the_total() -> None:
    breakdown = {
        "stages_s": {"prepare": 0.01, "queue": 0.2, "reserve": 0.01, "prefill": 0.3, "handoff": 0.02},
        "prefill_queue_s": 0.1,
        "prefill_compute_s": 0.19,
        "transfer_s": 0.05,
        "decode_queue_s": 0.02,
        "total_s": 2.0,
    }
    last = _event(choices=[], usage={"prompt_tokens": 10, "completion_tokens": 1}, tandem=breakdown)
    r = _run([(100.1, _text("a")), (100.2, _text("", "length") + last + DONE)])
    stages = dict(r.stages_s)
    assert list(stages) == ["queue", "prefill", "transfer", "decode_queue", "decode"]
    assert sum(stages.values()) == pytest.approx(2.0)
    assert stages["queue"] == pytest.approx(0.32)
    assert stages["prefill"] == pytest.approx(0.2)


def test_the_prefill_of_a_colocated_worker_has_its_stage() -> None:
    breakdown = {
        "stages_s": {"prepare": 0.01, "queue": 0.02, "reserve": 0.01},
        "prefill_queue_s": 0.0,
        "prefill_compute_s": 0.3,
        "transfer_s": 0.0,
        "decode_queue_s": 0.06,
        "total_s": 1.0,
    }
    stages = stages_of(breakdown)
    assert stages == pytest.approx({"queue": 0.04, "prefill": 0.3, "transfer": 0, "decode_queue": 0.06, "decode": 0.6})
