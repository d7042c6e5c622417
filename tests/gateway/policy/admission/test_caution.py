"""An error budget that is overspent makes a worker more careful, and no more than it needs."""

import pytest

from gateway.policy.admission.caution import Caution


def test_within_its_budget_it_stays_as_declared() -> None:
    subject = Caution(0.1)
    for number in range(1_000):
        subject.passed(10, over=number % 20 == 0)  # half of what is declared
    assert subject.epsilon == pytest.approx(0.1, abs=0.02)


def test_in_the_long_run_what_is_declared_is_what_comes() -> None:
    """Of a worker that is above the limit twice as often as its forecast says, for every deviation of room half as often."""
    subject, above = Caution(0.05), 0.0
    for number in range(40_000):
        share = 0.1 * 0.5**subject.extra
        over = number % 100 < 100 * share
        subject.passed(10, over=over)
        above += over / 40_000
    assert above == pytest.approx(0.05, rel=0.1)


def test_time_above_the_limit_costs_room_and_calm_earns_it_back() -> None:
    subject = Caution(0.1)
    for _ in range(30):
        subject.passed(10, over=True)
    careful = subject.epsilon
    assert careful < 0.02
    for _ in range(75):
        subject.passed(20, over=False)
    assert careful < subject.epsilon < 0.1
    for _ in range(75):
        subject.passed(20, over=False)
    assert subject.epsilon == pytest.approx(0.1)


def test_time_with_no_room_at_all_counts_for_more() -> None:
    above, full = Caution(0.1), Caution(0.1)
    above.passed(10, over=True)
    full.passed(10, over=True, full=True)
    assert full.extra > 5 * above.extra


def test_one_overrun_of_answers_that_live_long_is_no_more_of_a_proof_than_one_of_short_ones() -> None:
    """Either lasts for a tenth of a life; that of the long ones took the most caution there is, for hours."""
    short, long = Caution(0.1), Caution(0.1)
    for _ in range(12):
        short.passed(10, over=True, life_steps=1_200)
    for _ in range(12):
        long.passed(80, over=True, life_steps=9_600)
    assert long.extra == pytest.approx(short.extra)
    assert long.extra < 0.5


def test_it_ends_somewhere_and_one_late_look_does_not_decide() -> None:
    subject = Caution(0.1)
    subject.passed(1_000_000, over=True)
    assert subject.extra < 0.5
    for _ in range(100):
        subject.passed(100, over=True)
    assert subject.extra == subject.most
    assert subject.epsilon > 0.0001


def test_a_worker_that_ran_out_of_room_and_saw_no_answer_move_is_bold_no_more() -> None:
    alone, among_others = Caution(0.12), Caution(0.12)
    for _ in range(10):
        alone.passed(10, over=True, full=True, life_steps=5_000)
        among_others.passed(10, over=True, full=True, life_steps=5_000)
    among_others.helped = True
    alone.extra = among_others.extra = 0.0
    assert alone.epsilon == pytest.approx(0.04)
    assert among_others.epsilon == pytest.approx(0.12)


def test_who_declares_less_than_a_worker_alone_accepts_keeps_it() -> None:
    subject = Caution(0.01)
    for _ in range(20):
        subject.passed(100, over=True, full=True)
    assert subject.accepted == 0.01
