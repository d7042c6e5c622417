"""The request log: one JSON line a request, and nothing private."""

import json
import logging

import pytest

from gateway.observe.fanout import Fanout
from gateway.observe.request_log import RequestLog
from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.request.errors import Reason, RequestError
from gateway.request.observer import Moved
from gateway.request.phase import Phase
from gateway.request.record import Record


def ended_record() -> Record:
    record = Record("abc", "m", "acme", prompt_tokens=5, choices=1, started_s=100.0)
    for phase, moment_s in ((Phase.QUEUED, 100.5), (Phase.RESERVED, 101.0), (Phase.DECODING, 101.5)):
        record.enter(phase, moment_s)
    record.first_token_s = 102.0
    record.reason = Reason.WORKER_LOST
    record.failed_phase = Phase.DECODING
    record.enter(Phase.FAILED, 103.0)
    return record


def test_a_request_is_one_json_line_with_offsets_from_its_arrival(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tandem.requests"):
        RequestLog().ended(ended_record())
    (line,) = [json.loads(entry.message) for entry in caplog.records]
    assert (line["event"], line["request_id"], line["outcome"]) == ("request", "abc", "failed")
    assert (line["reason"], line["failed_phase"]) == ("worker_lost", "decoding")
    assert line["phases_s"] == {"queued": 0.5, "reserved": 1.0, "decoding": 1.5, "failed": 3.0}
    assert (line["first_token_s"], line["last_token_s"], line["total_s"]) == (2.0, None, 3.0)


def test_a_refusal_is_logged_with_the_numbers_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    error = RequestError(Reason.KV_CAPACITY, "never", numbers={"blocks_needed": 9})
    with caplog.at_level(logging.INFO, "tandem.requests"):
        RequestLog().refused(ended_record(), error)
    line = json.loads(caplog.records[0].message)
    assert (line["level"], line["reason"], line["numbers"]) == ("warning", "kv_capacity", {"blocks_needed": 9})


def test_a_move_is_logged_with_where_from_where_to_and_the_bytes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tandem.requests"):
        RequestLog().moved(
            ended_record(), Moved("abc", "overrun", "refused", "transfer", "d0", "d1", 7, {"move_bytes": 9.0})
        )
    line = json.loads(caplog.records[0].message)
    assert (line["event"], line["level"], line["reason"], line["outcome"]) == (
        "answer not moved",
        "info",
        "overrun",
        "refused",
    )
    assert (line["source"], line["target"], line["tokens"], line["numbers"]) == ("d0", "d1", 7, {"move_bytes": 9.0})


def test_an_observer_that_fails_harms_nobody_and_is_heard_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SilentSurfaceObserver):
        def ended(self, record: Record) -> None:
            raise ValueError("defect")

    class Counting(SilentSurfaceObserver):
        ends = 0

        def ended(self, record: Record) -> None:
            self.ends += 1

    counting = Counting()
    fanout = Fanout([Broken(), counting])
    for _ in range(3):
        fanout.ended(ended_record())
    assert counting.ends == 3
    assert len([entry for entry in caplog.records if "Broken.ended" in entry.message]) == 1
