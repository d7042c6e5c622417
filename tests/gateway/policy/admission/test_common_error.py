"""R-13: a shift of all lengths is noticed from the answers that do not end, long before the long ones finish."""

import numpy as np
import pytest

from gateway.policy.admission import Budget, Candidate, KvBook
from gateway.policy.admission.common_error import GROUPS, CommonError
from gateway.policy.estimate.estimate import LEVELS, Estimate
from tests.gateway.policy.admission.families import SIZE, drawn, lognormal


def live(factor: float, steps: int, seed: int = 5) -> tuple[CommonError, int]:
    """200 answers at a time on a worker; their lengths are `factor` times the estimate. Also the number finished."""
    random, estimate, error = np.random.default_rng(seed), lognormal(400, 0.8), CommonError()
    subject = KvBook(100_000, SIZE, error=error)
    ends: dict[str, float] = {}
    finished = 0
    for now in range(0, steps, 8):
        while len(ends) < 200:
            name = f"r{now}/{len(ends)}/{finished}"
            ends[name] = now + factor * float(drawn(estimate, np.zeros(1), random)[0])
            subject.add(name, 100, estimate, limit_tokens=100_000)
        subject.progress(8)
        subject.freshen()
        for name in [name for name, end in ends.items() if end <= now + 8]:
            subject.remove(name, ended=True)
            del ends[name]
            finished += 1
    return error, finished


@pytest.mark.slow
def test_right_estimates_are_left_alone() -> None:
    for seed in range(4):
        error, _ = live(1.0, 3_000, seed)
        assert error.stretch[0] < 1.25
        assert error.spread[0] <= 0.3


def test_a_shift_by_four_is_seen_within_the_time_of_one_median_answer() -> None:
    error, finished = live(4.0, 600)
    assert finished < 60  # of the first 200, before most have ended
    assert error.stretch[0] > 2.0
    settled, _ = live(4.0, 4_000)
    assert 2.0 < settled.stretch[0] * (1 + settled.spread[0]) < 6.0


def test_shorter_answers_are_not_for_this_to_learn() -> None:
    error, _ = live(0.5, 2_000)
    assert error.stretch[0] == 1.0


def test_an_end_at_the_limit_and_a_preemption_say_nothing() -> None:
    error = CommonError()
    subject = KvBook(1_000, SIZE, error=error)
    subject.add("capped", 10, lognormal(400, 0.8), limit_tokens=50)
    subject.progress(50)
    subject.remove("capped", ended=True)
    subject.add("preempted", 10, lognormal(400, 0.8))
    subject.remove("preempted")
    assert error.seen.sum() == 0
    assert error.expected.sum() == pytest.approx(0, abs=0.05)


def test_the_end_of_an_answer_of_known_length_says_nothing() -> None:
    error = CommonError()
    subject = KvBook(1_000, SIZE, error=error)
    for name, steps in (("in time", 200), ("a block late", 216), ("a block early", 192)):
        subject.add(name, 10, Estimate.exactly(200), limit_tokens=9_000)
        subject.progress(steps)
        subject.refresh()
        subject.remove(name, ended=True)
    assert error.seen.sum() == 0
    assert error.expected.sum() == 0


def test_chance_moves_it_little_and_a_shift_as_far_as_it_goes() -> None:
    for seen, least, most in ((50.0, 1.0, 1.0), (40.0, 1.0, 1.1), (30.0, 1.05, 1.3), (12.0, 2.5, 4.0), (0.0, 6.0, 8.0)):
        error = CommonError(expected=np.full(GROUPS, 50.0), seen=np.full(GROUPS, seen))
        assert least <= error.stretch[0] <= most


def test_endings_as_expected_narrow_the_doubt() -> None:
    error = CommonError(doubt=0.2)
    assert error.spread[0] == pytest.approx(0.2, rel=0.5)
    error.observe(np.full(GROUPS, 50.0), np.full(GROUPS, 50.0))
    assert error.spread[0] < 0.13


def test_what_is_learnt_is_forecast() -> None:
    error = CommonError()
    subject = KvBook(1_000, SIZE, error=error)
    subject.add("r", 10, lognormal(400, 0.8), limit_tokens=100_000)
    before = subject.forecast(Budget()).outlook.peak_blocks
    error.observe(np.array([60.0, 0, 0, 0]), np.array([10.0, 0, 0, 0]))
    subject.refresh()
    assert subject.forecast(Budget()).outlook.peak_blocks > 1.5 * before


def test_old_answers_that_do_not_end_are_not_outvoted_by_many_short_ones_that_do() -> None:
    error = CommonError()
    error.observe(np.array([500.0, 0, 30.0, 0]), np.array([500.0, 0, 0, 0]))
    assert error.stretch[0] == error.stretch[1] == 1.0
    assert error.stretch[2] > 2.0


def test_the_newest_lengths_of_a_class_count_for_its_answers_that_run() -> None:
    subject = KvBook(10_000, SIZE)
    for name, limit, kin in (("old", 2_000, "a"), ("roomy", 9_000, "a"), ("other", 2_000, "b")):
        subject.admit(Candidate(name, 16, lognormal(100, 0.3), limit, kin=kin))
    subject.told(Candidate("new", 16, lognormal(800, 0.2).capped(2_000), 2_000, kin="a"))
    subject.refresh()
    medians = {name: subject.rows.lengths[at][LEVELS == 0.5][0] for name, at in subject.rows.place.items()}
    assert medians == {"old": 800, "roomy": 800, "other": 100}
    # What is cut at the teller's own limit says nothing of answers that may get longer.
    subject.told(Candidate("new", 16, lognormal(8_000, 0.3).capped(2_000), 2_000, kin="a"))
    subject.refresh()
    medians = {name: subject.rows.lengths[at][LEVELS == 0.5][0] for name, at in subject.rows.place.items()}
    assert medians == {"old": 2_000, "roomy": 800, "other": 100}


def test_what_estimates_have_learnt_is_not_counted_against_them_again() -> None:
    error = CommonError()
    subject = KvBook(10_000, SIZE, error=error)
    for number in range(40):
        subject.admit(Candidate(f"r{number}", 16, lognormal(200, 0.5), 9_000, kin="a"))
    subject.progress(300)
    subject.refresh()
    assert error.stretch[0] > 2.0
    subject.told(Candidate("new", 16, lognormal(2_000, 0.5), 9_000, kin="a"))
    subject.refresh()
    assert error.stretch[0] < 1.6
