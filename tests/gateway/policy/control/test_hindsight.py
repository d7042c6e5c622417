"""Early refusals are judged by what was seen afterwards."""

import pytest

from gateway.policy.control.hindsight import LATE_S, Hindsight, Verdict
from gateway.policy.rejection import RejectReason
from tests.gateway.policy.control.test_controller import World

TTFT, DECODE = RejectReason.TTFT, RejectReason.DECODE


def judged(one: Hindsight) -> dict[tuple[RejectReason, Verdict], int]:
    return dict(one.judged)


@pytest.mark.parametrize(("third_s", "verdict"), [(8.0, Verdict.WRONG), (12.0, Verdict.RIGHT)])
def test_a_promise_is_judged_by_the_turn_after_those_who_waited(third_s: float, verdict: Verdict) -> None:
    one = Hindsight()
    one.admitted(0.0)
    one.late(waiting=2, latest_turn_s=10.0, now_s=1.0)
    one.admitted(2.0)
    one.admitted(3.0)
    assert judged(one) == {}
    one.admitted(third_s)
    assert judged(one) == {(TTFT, verdict): 1}


def test_a_promise_whose_turn_never_came_was_rightly_refused() -> None:
    one = Hindsight()
    one.late(waiting=5, latest_turn_s=10.0, now_s=1.0)
    one.look(9.0, 0.0)
    assert one.open(TTFT) == 1
    one.look(10.5, 0.0)
    assert judged(one) == {(TTFT, Verdict.RIGHT): 1}
    one.admitted(11.0)
    assert one.open(TTFT) == 0


def test_what_the_prompts_own_computing_breaks_is_not_judged() -> None:
    one = Hindsight()
    one.late(waiting=0, latest_turn_s=0.5, now_s=1.0)
    assert judged(one) == {(TTFT, Verdict.UNJUDGED): 1}


@pytest.mark.parametrize(
    ("at_s", "load", "verdict"),
    [
        (10.0, 0.8, Verdict.WRONG),
        (10.0 + LATE_S, 0.95, Verdict.RIGHT),
        (10.1 + LATE_S, 0.95, Verdict.UNJUDGED),
    ],
)
def test_a_load_is_judged_at_the_moment_it_was_predicted_for(at_s: float, load: float, verdict: Verdict) -> None:
    one = Hindsight()
    one.full(at_s=10.0, room=0.9)
    one.look(9.9, 0.0)
    assert judged(one) == {}
    assert one.due_s == 10.0
    one.look(at_s, load)
    assert judged(one) == {(DECODE, verdict): 1}


def test_open_refusals_are_bounded() -> None:
    one = Hindsight(most=2)
    for _ in range(5):
        one.full(10.0, 0.9)
        one.late(0, 10.0, 1.0)
    assert (one.open(TTFT), one.open(DECODE)) == (2, 2)
    assert judged(one) == {(TTFT, Verdict.UNJUDGED): 3, (DECODE, Verdict.UNJUDGED): 3}


def test_the_controller_looks_back_when_the_moment_has_come() -> None:
    world = World({"early_rejection": {"decode": True}}, free=3)
    early = world.controller.early
    assert world.controller.objection(world.bid(), world.fleet(), 0, 0.0) is not None
    world.free = 1000
    early.look_back(world.fleet, 0)
    assert early.hindsight.open(DECODE) == 1
    world.now_s = early.hindsight.due_s
    early.look_back(world.fleet, 0)
    assert judged(early.hindsight) == {(DECODE, Verdict.WRONG): 1}
    (row,) = world.controller.snapshot({}).early
    assert (row.reason, row.wrong, row.open) == ("decode_overloaded", 1, 0)


def test_an_admission_after_a_refused_promise_judges_it() -> None:
    world = World({"classes": {"default": {"ttft_s": 5.0}}})
    assert world.controller.objection(world.bid(), world.fleet(), waiting=9, admitted_per_s=1.0) is not None
    world.now_s += 1.0
    for _ in range(10):
        world.controller.early.granted()
    assert judged(world.controller.early.hindsight) == {(TTFT, Verdict.WRONG): 1}
