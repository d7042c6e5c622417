"""When a worker may be given work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cluster.health import Health
from gateway.cluster.states import WORKER_TRANSITIONS, WorkerStatus
from gateway.config import HealthConfig
from proto.fault import REQUEST_FAULTS, FaultKind
from tests.gateway.cluster.facts import Clock, state

CONFIG = HealthConfig(stale_after_s=3, failures_to_eject=3, probe_backoff_s=1, probe_backoff_max_s=8)


class Patient:
    """A worker's health with its history."""

    def __init__(self, ready: bool = True) -> None:
        self.clock = Clock()
        self.moves: list[tuple[WorkerStatus, str]] = []
        self.health = Health(CONFIG, self.clock, lambda before, after, reason: self.moves.append((after, reason)))
        if ready:
            self.health.connected()
            self.health.warmed()
            assert self.health.status is WorkerStatus.READY

    def after(self, seconds: float, *, heard: bool = True) -> WorkerStatus:
        self.clock.now_s += seconds
        if heard:
            self.health.heard(state())
        self.health.tick()
        return self.health.status

    def fault(self, kind: FaultKind = FaultKind.INTERNAL, leg: str = "prefill", times: int = 1) -> WorkerStatus:
        for _ in range(times):
            self.health.fault(leg, kind, "boom")
        return self.health.status


def test_every_status_is_in_the_table() -> None:
    assert set(WORKER_TRANSITIONS) == set(WorkerStatus)


def test_a_worker_is_ready_once_connected_and_warm() -> None:
    one = Patient(ready=False)
    one.health.connected()
    one.health.heard(state())
    assert [status for status, _ in one.moves] == [WorkerStatus.WARMING]
    one.health.warmed()
    assert [status for status, _ in one.moves] == [WorkerStatus.WARMING, WorkerStatus.READY]


def test_b54_silence_makes_a_suspect_and_a_word_heals_it() -> None:
    one = Patient()
    assert one.after(2.9, heard=False) is WorkerStatus.READY
    assert one.after(0.2, heard=False) is WorkerStatus.SUSPECT
    assert one.after(0.1) is WorkerStatus.READY


def test_draining_unhealthy_and_back() -> None:
    one = Patient()
    one.health.heard(state(draining=True))
    one.health.heard(state(healthy=False, detail="no engine step for 120 s"))
    one.health.heard(state())
    assert one.moves[-3:] == [
        (WorkerStatus.DRAINING, "draining"),
        (WorkerStatus.SUSPECT, "no engine step for 120 s"),
        (WorkerStatus.READY, ""),
    ]


@pytest.mark.parametrize("kind", sorted(REQUEST_FAULTS))
def test_b44_what_the_request_did_never_counts(kind: FaultKind) -> None:
    one = Patient()
    assert one.fault(kind, times=100) is WorkerStatus.READY
    assert one.health.consecutive_faults == 0


def test_b46_consecutive_faults_eject() -> None:
    one = Patient()
    assert one.fault(times=2) is WorkerStatus.READY
    assert one.fault() is WorkerStatus.EJECTED
    assert "boom" in one.health.reason


def test_success_in_between_starts_the_count_again_but_only_for_its_own_leg() -> None:
    one = Patient()
    one.fault(times=2)
    one.health.success("prefill")
    assert one.fault(times=2) is WorkerStatus.READY
    one.health.success("decode")  # a healthy leg does not hide a broken one
    assert one.fault() is WorkerStatus.EJECTED


def test_a_dead_engine_ejects_at_once() -> None:
    assert Patient().fault(FaultKind.ENGINE_DEAD) is WorkerStatus.EJECTED


def test_b43_an_ejected_worker_is_probed_with_doubling_delays() -> None:
    one = Patient()
    one.fault(times=3)
    delays = []
    for _ in range(5):
        waited = 0.0
        while not one.health.probe_due:
            one.after(0.5)
            waited += 0.5
        delays.append(waited)
        one.health.probed(False, "still broken")
        assert one.health.status is WorkerStatus.EJECTED
    assert delays == [1, 2, 4, 8, 8]
    one.after(8)
    one.health.probed(True)
    assert one.health.status is WorkerStatus.READY


def test_a_probe_that_passes_where_work_does_not_keeps_the_backoff_growing() -> None:
    one = Patient()
    one.fault(times=3)
    one.after(1)
    one.health.probed(True)
    one.fault(times=3)
    assert one.after(1.5) is WorkerStatus.EJECTED
    assert not one.health.probe_due
    one.after(0.5)
    assert one.health.probe_due
    one.health.probed(True)
    one.health.success("prefill")  # real work: the slate is clean
    one.fault(times=3)
    one.after(1)
    assert one.health.probe_due


def test_b29_a_missed_deadline_makes_a_suspect_until_a_probe_or_work_comes_through() -> None:
    one = Patient()
    one.health.deadline_missed("no first token for 120 s")
    assert (one.health.status, one.health.reason) == (WorkerStatus.SUSPECT, "no first token for 120 s")
    assert one.after(0.1) is WorkerStatus.SUSPECT  # its word alone is not enough
    assert one.health.probe_due
    one.health.probed(False, "no answer")
    assert one.health.status is WorkerStatus.EJECTED
    other = Patient()
    other.health.deadline_missed("late")
    other.health.success("decode")
    assert other.health.status is WorkerStatus.READY


def test_a_lost_worker_starts_again_from_connecting() -> None:
    one = Patient()
    one.health.lost("connection reset")
    one.health.lost("again")
    assert one.health.status is WorkerStatus.GONE
    assert one.after(1) is WorkerStatus.GONE
    one.health.connected()
    one.health.warmed()
    assert [status for status, _ in one.moves[-4:]] == [
        WorkerStatus.GONE,
        WorkerStatus.CONNECTING,
        WorkerStatus.WARMING,
        WorkerStatus.READY,
    ]


def test_a_lost_worker_is_waited_for_a_moment() -> None:
    one = Patient()
    assert not one.health.recovering
    one.health.lost("connection reset")
    assert one.health.recovering
    one.after(1.1)
    assert not one.health.recovering


def test_a_refused_worker_is_never_probed_and_can_be_let_in_again() -> None:
    one = Patient()
    one.health.refuse("another model")
    one.after(100)
    assert (one.health.status, one.health.probe_due) == (WorkerStatus.EJECTED, False)
    one.health.refuse("")
    assert one.health.status is WorkerStatus.READY


EVENTS = [
    "heard",
    "drain",
    "ill",
    "silence",
    "fault",
    "fatal",
    "late",
    "ok",
    "probe",
    "noprobe",
    "lost",
    "back",
    "no",
    "yes",
]


@given(st.lists(st.sampled_from([*EVENTS, "connect", "warm"]), max_size=60))
def test_no_order_of_events_breaks_the_table(events: list[str]) -> None:
    one = Patient(ready=False)
    health = one.health
    gone = True
    for event in events:
        match event:
            case "connect" | "back" if gone:
                health.connected()
                gone = False
            case "lost":
                health.lost("x")
                gone = True
            case "warm" if not gone:
                health.warmed()
            case "silence":
                one.after(5, heard=False)
            case "fault" | "fatal":
                one.fault(FaultKind.ENGINE_DEAD if event == "fatal" else FaultKind.INTERNAL)
            case "late":
                health.deadline_missed("late")
            case "ok":
                health.success("prefill")
            case "probe" | "noprobe":
                health.probed(event == "probe")
            case "no" | "yes":
                health.refuse("no" if event == "no" else "")
            case "heard" | "drain" | "ill" if not gone:
                health.heard(state(draining=event == "drain", healthy=event != "ill"))
        if health.status is WorkerStatus.READY:
            assert not health.breaker.open
