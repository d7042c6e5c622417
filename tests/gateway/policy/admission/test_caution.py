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


def without_room(subject: Caution, steps: int) -> None:
    for _ in range(steps // 10):
        subject.passed(10, over=True, full=True, life_steps=5_000)


def test_a_worker_that_ran_out_of_room_and_that_no_answer_left_is_bold_no_more() -> None:
    subject = Caution()
    without_room(subject, 90)
    assert subject.accepted == 0.12
    without_room(subject, 10)
    subject.extra = 0.0
    assert subject.epsilon == pytest.approx(0.04)


def test_what_was_found_out_is_true_until_an_answer_leaves_and_is_found_out_again() -> None:
    """A fleet grows, and shrinks: neither what one answer did long ago nor what none did is true for good."""
    subject = Caution()
    without_room(subject, 100)
    for _ in range(10_000):
        subject.passed(100, over=False)
    assert subject.accepted == 0.04
    subject.answer_left()
    assert subject.accepted == 0.12
    without_room(subject, 90)
    assert subject.accepted == 0.12
    without_room(subject, 10)
    assert subject.accepted == 0.04


@pytest.mark.parametrize(("calm_steps", "accepted"), [(20_000, 0.12), (5_000, 0.04)])
def test_bad_moments_far_apart_are_no_proof(calm_steps: int, accepted: float) -> None:
    """Ten steps each: once in an hour they are not what one in a thousand of all is."""
    subject = Caution()
    for _ in range(50):
        without_room(subject, 10)
        for _ in range(calm_steps // 100):
            subject.passed(100, over=False)
    assert subject.accepted == accepted


@pytest.mark.parametrize("declared", [0.01, 0.2])
def test_what_is_declared_is_accepted_whatever_a_worker_finds_out(declared: float) -> None:
    subject = Caution(declared)
    without_room(subject, 2_000)
    assert subject.accepted == declared
