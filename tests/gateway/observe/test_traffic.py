"""What was asked of late: no request that ended early may leave its longer neighbours behind (R-63)."""

import pytest

from gateway.observe.traffic import SCHEMA, Known, Traffic
from gateway.policy.estimate import Change, Drift, Features
from gateway.request.errors import Reason
from gateway.request.phase import Phase
from gateway.request.record import Record


def record(at_s: float, tokens: int = 20, phase: Phase = Phase.DONE, *, expected: float = 50.0) -> Record:
    made = Record("id", "m", "acme", prompt_tokens=100, choices=1, started_s=at_s, klass="chat")
    made.phase, made.completion_tokens, made.estimated_tokens, made.cached_tokens = phase, tokens, expected, 64
    return made


def test_what_ended_and_what_runs_is_told_in_the_order_of_arrival() -> None:
    traffic = Traffic(8, began_s=0.0)
    for at_s in (3.0, 1.0):
        traffic.ended(record(at_s))
    seen = traffic.seen([record(2.0, 60, Phase.DECODING)], now_s=10.0)
    assert [(row.at_s, row.known) for row in seen.rows] == [(1.0, Known.DONE), (2.0, Known.OPEN), (3.0, Known.DONE)]


@pytest.mark.parametrize(
    ("phase", "came", "length"), [(Phase.DONE, 7, 7), (Phase.DECODING, 7, 50), (Phase.CANCELLED, 70, 70)]
)
def test_an_answer_that_is_not_over_is_likely_as_long_as_was_expected(phase: Phase, came: int, length: int) -> None:
    traffic = Traffic(8, began_s=0.0)
    traffic.ended(record(1.0, came, phase))
    (row,) = traffic.seen([], now_s=2.0).rows
    assert (row.output_tokens, row.likely_tokens) == (came, length)


def test_requests_that_were_wrong_as_such_are_no_traffic_and_refused_ones_are() -> None:
    wrong, refused, unplanned = (
        record(1.0, 0, Phase.REJECTED),
        record(2.0, 0, Phase.REJECTED),
        record(3.0, 0, expected=0),
    )
    wrong.reason, refused.reason = Reason.INVALID_REQUEST, Reason.QUEUE_FULL
    traffic = Traffic(8, began_s=0.0)
    for one in (wrong, refused, unplanned):
        traffic.ended(one)
    assert [row.at_s for row in traffic.seen([], now_s=4.0).rows] == [2.0]


def test_the_window_begins_where_every_later_arrival_is_known() -> None:
    """Of two that came together the short one ends first and is dropped first; the long one must not stand for both."""
    traffic = Traffic(2, began_s=0.0)
    for at_s in (1.0, 3.0, 0.5, 4.0):  # in the order in which they end; the one of 0.5 took long
        traffic.ended(record(at_s))
    seen = traffic.seen([], now_s=5.0)
    assert seen.from_s == 3.0
    assert [row.at_s for row in seen.rows] == [4.0]


def test_only_the_end_of_the_window() -> None:
    traffic = Traffic(8, began_s=0.0)
    for at_s in (1.0, 8.0):
        traffic.ended(record(at_s))
    seen = traffic.seen([], now_s=10.0, within_s=5.0)
    assert (seen.from_s, [row.at_s for row in seen.rows]) == (5.0, [8.0])


def test_the_document_has_rates_lengths_and_drifts() -> None:
    traffic = Traffic(8, began_s=0.0)
    for at_s, tokens in ((1.0, 10), (2.0, 20), (3.0, 30)):
        traffic.ended(record(at_s, tokens))
    events = [Drift(("m",), Change.SHORTER, 0.5, 9), Drift(("m", "-"), Change.LONGER, 2.5, 12)]
    document = traffic.seen([], now_s=4.0).document(7, events, rows=True)
    assert (document["schema"], document["requests"], document["rate_ps"], document["gap_cv"]) == (SCHEMA, 3, 0.75, 0.0)
    chat = document["classes"]["chat"]
    assert (chat["output"]["p50"], chat["output"]["p99"], chat["cached_share"]) == (20, 30, 0.64)
    assert [(event["number"], event["age_s"], event["requests_since"]) for event in document["drifts"]["newest"]] == [
        (6, 3.5, 3),
        (7, 1.5, 1),
    ]
    assert document["rows"][0] == [3.0, "chat", 100, 64, 10, "done", 50]


def test_a_drift_of_a_tenants_answers_does_not_tell_whose_they_are() -> None:
    """The estimate's classes are by tenant, and the account is a file that goes from hand to hand."""
    classes = Features("m", 100, tenant="acme", effort="high").path((128,))
    events = [Drift(key, Change.LONGER, 1.0, 9) for key in classes[1:]]
    document = Traffic(8, began_s=0.0).seen([record(2.0)], now_s=4.0).document(4, events, rows=True)
    assert [event["class"] for event in document["drifts"]["newest"]] == [
        ["m"],
        ["m", "high"],
        ["m", "high"],
        ["m", "high", "prompt≤128"],
    ]
    assert "acme" not in str(document)


def test_nothing_is_kept_where_nothing_is_to_be() -> None:
    traffic = Traffic(0, began_s=0.0)
    traffic.ended(record(1.0))
    assert traffic.seen([], now_s=2.0).document(0, [], rows=False)["requests"] == 0
