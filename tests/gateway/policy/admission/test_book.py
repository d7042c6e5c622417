"""The forecast against what happens: drawn lengths, exact lengths, and an account that ends at zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import Budget, Candidate, KvBook
from gateway.policy.admission.common_error import GROUPS, CommonError
from gateway.policy.admission.risk import M
from gateway.policy.estimate.estimate import Estimate
from tests.examples import examples
from tests.gateway.policy.admission.families import SIZE, book, drawn, joined, lognormal

PLAIN = Budget(epsilon=0.01, pool_blocks=0)


def test_an_empty_book_forecasts_nothing() -> None:
    forecast = book().forecast(PLAIN)
    assert not forecast.mean.any()
    assert (forecast.outlook.peak_blocks, forecast.outlook.risk) == (0.0, 0.0)


def test_a_known_length_is_forecast_to_the_block() -> None:
    # 100 + 400 tokens are 32 blocks just before the end.
    outlook = joined(book(), Candidate("c", 100, Estimate.exactly(400), 400), PLAIN)
    assert outlook.peak_blocks == outlook.mean_peak_blocks == 32
    assert outlook.headroom_blocks == 1_000 - 32


@pytest.mark.parametrize("end", [17, 300, 1111, 2222])
def test_requests_that_share_a_limit_peak_together_just_before_it(end: int) -> None:
    # The grid is coarse far out; what ends between two of its steps must not be missed.
    many = book()
    for index in range(50):
        many.add(f"r{index}", 16, Estimate.exactly(end))
    assert many.forecast(PLAIN).outlook.peak_blocks == 50 * -(-(16 + end) // SIZE)


def test_the_forecast_is_the_distribution_of_what_is_held() -> None:
    random = np.random.default_rng(1)
    estimate, requests, prompt = lognormal(800, 0.9), 200, 250
    generated = random.integers(0, 900, requests).astype(np.float64)
    subject = book(20_000)
    for index, tokens in enumerate(generated):
        subject.add(f"r{index}", prompt, estimate, generated_tokens=int(tokens))
    forecast = subject.forecast(PLAIN)
    ends = np.stack([drawn(estimate, generated, random) for _ in range(2_000)])
    for step, mean, deviation, high in zip(
        forecast.steps[:36], forecast.mean, forecast.deviation, forecast.high, strict=False
    ):
        held = (np.ceil((prompt + generated + step + 1) / SIZE) * (ends > generated + step)).sum(axis=1)
        assert held.mean() == pytest.approx(mean, rel=0.02, abs=10)
        assert held.std() == pytest.approx(deviation, rel=0.1, abs=5)
        assert (held > high).mean() <= 0.025
        assert (held > high).mean() >= 0.002 or step < 300  # until then nearly all live: no quantile to miss


def test_few_large_requests_are_not_judged_by_the_bell_curve() -> None:
    # Each of three lives on with chance 2 %; any one of them is too much. The bell curve would call that impossible.
    long = Estimate.of_samples([10] * 98 + [40_000] * 2)
    subject = book(2_000)
    for index in range(3):
        subject.add(f"r{index}", 16, long, limit_tokens=40_000)
    outlook = subject.forecast(PLAIN).outlook
    assert outlook.peak_blocks > 2_000
    assert outlook.mean_peak_blocks + PLAIN.z * subject.forecast(PLAIN).deviation.max() < 2_000
    assert outlook.risk > PLAIN.epsilon


def test_a_large_request_that_is_rarer_than_the_budget_is_within_it() -> None:
    rare = Estimate.of_samples([10] * 9_995 + [40_000] * 5)
    subject = book(2_000)
    subject.add("r", 16, rare, limit_tokens=40_000)
    outlook = subject.forecast(PLAIN).outlook
    assert outlook.peak_blocks < 500
    assert outlook.risk < PLAIN.epsilon


@given(st.lists(st.tuples(st.integers(10, 3_000), st.integers(0, 400)), max_size=6), st.integers(50, 1_500))
@examples(60)
def test_risk_and_quantile_say_the_same(requests: list[tuple[int, int]], blocks: int) -> None:
    subject = book(blocks, spread=0.1)
    for index, (median, prompt) in enumerate(requests):
        subject.add(f"r{index}", prompt, lognormal(median, 0.8))
    for epsilon in (0.001, 0.01, 0.2):
        outlook = subject.forecast(Budget(epsilon, 0)).outlook
        if abs(outlook.headroom_blocks) > 1e-6:
            assert (outlook.risk <= epsilon) == (outlook.headroom_blocks >= 0)


def test_a_request_in_prefill_counts_from_its_arrival() -> None:
    subject = book()
    subject.add("r", 160, Estimate.exactly(100), arrival_steps=50)
    forecast = subject.forecast(PLAIN)
    held = dict(zip(forecast.steps.tolist(), forecast.mean.tolist(), strict=True))
    assert held[0.0] == held[16.0] == 0.0
    assert held[next(step for step in held if step >= 50)] >= 10
    assert subject.held_blocks == 0
    subject.progress(60)  # it is late, and still expected
    subject.refresh()
    assert subject.held_blocks == 0
    assert subject.totals[M.MEAN, 0] == 11
    subject.arrived("r")
    assert subject.held_blocks == 11


def test_growth_that_survival_rules_out_is_given_back() -> None:
    short_or_long = Estimate(np.array([100] * 20 + [5_000] * 13, dtype=np.int64))
    subject = book()
    subject.add("r", 16, short_or_long)
    before = subject.forecast(PLAIN).outlook.mean_peak_blocks
    subject.progress(101)
    subject.refresh()
    after = subject.forecast(PLAIN).outlook.mean_peak_blocks
    assert after > before  # it is one of the long ones
    subject.remove("r")
    assert subject.forecast(PLAIN).outlook.peak_blocks == 0


def test_an_answer_that_outlives_its_estimate_still_counts() -> None:
    subject = book()
    subject.add("r", 16, lognormal(100, 0.3), limit_tokens=10_000)
    subject.progress(3_000)
    subject.refresh()
    assert subject.held_blocks == 189
    assert subject.forecast(PLAIN).outlook.peak_blocks >= 189


def test_a_common_error_of_all_lengths_widens_the_forecast_but_not_the_present() -> None:
    books = [book(spread=spread) for spread in (0.0, 0.5)]
    for each in books:
        for index in range(100):
            each.add(f"r{index}", 16, lognormal(500, 0.5))
    sure, unsure = (each.forecast(PLAIN) for each in books)
    assert sure.high[0] == unsure.high[0]
    assert unsure.outlook.peak_blocks > 1.1 * sure.outlook.peak_blocks
    assert list(unsure.mean) == list(sure.mean)


def test_stretched_lengths_move_the_mean_but_never_past_the_limit() -> None:
    error = CommonError(doubt=0.0)
    subject = KvBook(1_000, SIZE, error=error)
    subject.add("r", 16, lognormal(500, 0.5), limit_tokens=600)
    before = subject.forecast(PLAIN).outlook.mean_peak_blocks
    error.observe(np.full(GROUPS, 4_000.0), np.full(GROUPS, 1_000.0))
    subject.refresh()
    forecast = subject.forecast(PLAIN)
    assert forecast.outlook.mean_peak_blocks > before
    assert forecast.high.max() <= 39


def test_the_same_request_twice_is_a_mistake() -> None:
    subject = book()
    subject.add("r", 16, Estimate.exactly(3))
    with pytest.raises(ValueError, match="already"):
        subject.add("r", 16, Estimate.exactly(3))


def test_what_was_really_generated_corrects_the_count_of_steps() -> None:
    subject = book()
    subject.add("r", 0, Estimate.exactly(1_000))
    subject.progress(100)
    subject.observed({"r": 31, "unknown": 5})
    assert subject.held_blocks == 2


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "progress", "arrived", "refresh"]), st.integers(0, 8), st.integers(1, 40)
    ),
    max_size=40,
)


@given(OPERATIONS)
@examples(60)
def test_the_running_sums_equal_the_sum_from_first_principles(operations: list[tuple[str, int, int]]) -> None:
    subject = book(spread=0.2)
    for what, who, amount in operations:
        name = f"r{who}"
        match what:
            case "add" if name not in subject:
                subject.add(name, amount, lognormal(50 * amount, 0.7), arrival_steps=who)
            case "remove":
                subject.remove(name)
            case "progress":
                subject.progress(amount)
            case "arrived":
                subject.arrived(name)
            case "refresh":
                subject.refresh()
        fresh = subject.rows.moments[: len(subject)].sum(axis=0)
        assert np.allclose(subject.totals, fresh, rtol=1e-9, atol=1e-6)
    for who in range(9):
        subject.remove(f"r{who}")
    assert not subject.totals.any()
    assert (len(subject), subject.held_blocks) == (0, 0)


def test_the_room_of_an_answer_that_ends_is_there_at_once() -> None:
    # Left to the next curve it stood empty for a second: 8 % of the goodput of short answers.
    subject = book()
    for index in range(100):
        subject.add(f"r{index}", 160, lognormal(400, 0.8))
    before = subject.totals[M.MEAN, 0]
    for index in range(5):
        subject.remove(f"r{index}", ended=True)
    assert not subject.due
    assert subject.totals[M.MEAN, 0] == before * 0.95 == subject.held_blocks


def test_what_ends_tell_of_the_others_is_never_far_behind() -> None:
    # Some have ended and the rest live on: until the curve is drawn anew it is too low, by what may end until then.
    random, estimate, requests = np.random.default_rng(7), lognormal(400, 0.8), 320
    drifts = []
    for _ in range(20):
        subject = KvBook(20_000, SIZE, refresh_steps=64)
        ends = drawn(estimate, np.zeros(requests), random)
        for index in range(requests):
            subject.add(f"r{index}", 100, estimate, limit_tokens=50_000)
        subject.progress(60)
        for index in np.flatnonzero(ends <= 60):
            subject.remove(f"r{index}", ended=True)
        at = int(np.searchsorted(subject.steps, 260))
        before = subject.totals[M.MEAN, at]
        assert not subject.due
        subject.refresh()
        drifts.append(np.interp(subject.steps[at] - 60, subject.steps, subject.totals[M.MEAN]) / before - 1)
    assert 0.0 < float(np.mean(drifts)) < 1 / 16


def test_a_book_is_due_when_many_have_ended_or_time_has_passed() -> None:
    subject = book()
    for index in range(40):
        subject.add(f"r{index}", 100, Estimate.exactly(100))
    for index in range(2):
        subject.remove(f"r{index}", ended=True)
    assert not subject.due
    subject.remove("r2", ended=True)
    assert subject.due
    subject.freshen()
    assert not subject.due
    subject.progress(8)
    assert subject.due


def test_a_life_is_that_of_all_answers_and_not_of_what_is_left_of_them() -> None:
    subject = KvBook(10_000, SIZE)
    assert subject.life_steps == 0.0
    subject.admit(Candidate("short", 16, lognormal(100, 0.3), 9_000))
    subject.admit(Candidate("long", 16, lognormal(700, 0.3), 9_000, generated_tokens=600))
    assert subject.life_steps == 400.0
