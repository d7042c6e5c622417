"""The state machine of a request."""

import pytest

from gateway.http.timings import breakdown, server_timing
from gateway.observe.metrics import Metrics
from gateway.request.phase import FINAL, TRANSITIONS, IllegalTransitionError, Phase, check
from gateway.request.record import Record


def test_every_phase_is_in_the_table_and_final_ones_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {phase for phase in Phase if not TRANSITIONS[phase]} == FINAL


def test_every_phase_can_fail_and_be_cancelled() -> None:
    for phase in set(Phase) - FINAL:
        assert {Phase.FAILED, Phase.CANCELLED} <= TRANSITIONS[phase]


@pytest.mark.parametrize(
    ("before", "after"),
    [(Phase.DONE, Phase.QUEUED), (Phase.QUEUED, Phase.DECODING), (Phase.RECEIVED, Phase.DONE)],
)
def test_illegal_moves_are_defects(before: Phase, after: Phase) -> None:
    with pytest.raises(IllegalTransitionError):
        check(before, after)


def test_a_record_remembers_when_it_entered_a_phase() -> None:
    record = Record("r", "m", "", 1, 1, started_s=1.0)
    record.enter(Phase.QUEUED, 2.0)
    record.enter(Phase.CANCELLED, 3.0)
    assert record.entered_s == {Phase.QUEUED: 2.0, Phase.CANCELLED: 3.0}
    assert record.ended_s == 3.0


RETRIED = (
    (Phase.QUEUED, 1.0),
    (Phase.RESERVED, 3.0),
    (Phase.PREFILLING, 4.0),
    (Phase.RESERVED, 14.0),
    (Phase.PREFILLING, 16.0),
    (Phase.HANDED_OFF, 21.0),
    (Phase.DECODING, 21.5),
    (Phase.RESERVED, 24.0),
    (Phase.DECODING, 24.5),
    (Phase.DONE, 30.0),
)


def retried() -> Record:
    record = Record("r", "m", "", 1, 1, started_s=0.0)
    for phase, moment_s in RETRIED:
        record.enter(phase, moment_s)
    return record


def test_phases_that_a_retry_enters_again_add_up() -> None:
    record = retried()
    assert record.spent_s == {
        Phase.RECEIVED: 1.0,
        Phase.QUEUED: 2.0,
        Phase.RESERVED: 1.0 + 2.0 + 0.5,
        Phase.PREFILLING: 10.0 + 5.0,
        Phase.HANDED_OFF: 0.5,
        Phase.DECODING: 2.5 + 5.5,
    }
    assert sum(record.spent_s.values()) == record.ended_s
    assert record.entered_s[Phase.RESERVED] == 24.0


def test_server_timing_gives_a_retried_request_its_times() -> None:
    stages = breakdown(retried(), 30.0, names=False)["stages_s"]
    assert stages == {"prepare": 1.0, "queue": 2.0, "reserve": 3.5, "prefill": 15.0, "handoff": 0.5}
    assert "prefill;dur=15000.00" in server_timing(retried())


def test_the_histogram_of_phases_has_one_entry_a_visit_and_the_same_sum() -> None:
    metrics, record = Metrics(), Record("r", "m", "", 1, 1, started_s=0.0)
    for phase, moment_s in RETRIED:
        before = record.phase
        record.enter(phase, moment_s)
        metrics.phase_changed(record, before, phase, moment_s)
    text = metrics.render().decode()
    assert 'tandem_phase_seconds_sum{phase="prefilling"} 15.0' in text
    assert 'tandem_phase_seconds_count{phase="prefilling"} 2.0' in text
    assert 'tandem_phase_seconds_sum{phase="reserved"} 3.5' in text
