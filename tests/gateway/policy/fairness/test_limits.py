"""Rates and concurrency of one tenant."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.fairness.bucket import SLACK_S, Bucket
from gateway.policy.fairness.limits import FORGET_ABOVE, Limited, Limiter, LimitReason, Limits, Pass
from tests.gateway.policy.fairness.serving import UNHURRIED

SECONDS = st.floats(0, 100, allow_nan=False)


def entered(answer: Pass | Limited) -> Pass:
    assert isinstance(answer, Pass)
    return answer


def refused(answer: Pass | Limited) -> Limited:
    assert isinstance(answer, Limited)
    return answer


@UNHURRIED
@given(
    st.floats(0.01, 1e6),
    st.floats(0.1, 1e6),
    st.lists(st.tuples(SECONDS, st.floats(0.1, 1e7)), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.8e9]),
)
def test_retry_after_is_exact(rate: float, burst: float, asks: list[tuple[float, float]], epoch_s: float) -> None:
    """It passes at that moment and not a thousandth earlier, also on a clock that counts from 1970."""
    bucket, now_s = Bucket(rate, max(burst, rate)), epoch_s
    for pause_s, cost in asks:
        now_s += pause_s
        if wait_s := bucket.wait_s(cost, now_s):
            assert bucket.wait_s(cost, now_s + 0.999 * wait_s - 2 * SLACK_S) > 0
            now_s += wait_s
            assert bucket.wait_s(cost, now_s) == 0
        bucket.take(cost, now_s)


@UNHURRIED
@given(st.lists(st.tuples(SECONDS, st.integers(1, 500)), max_size=50))
def test_the_long_run_rate_holds_even_for_requests_above_the_burst(asks: list[tuple[float, int]]) -> None:
    bucket, now_s, total = Bucket(10.0, 100.0), 0.0, 0.0
    for pause_s, cost in asks:
        now_s += pause_s
        if bucket.wait_s(cost, now_s) == 0:
            total += cost
            bucket.take(cost, now_s)
            assert total <= 100.0 + 10.0 * now_s + max(0, cost - 100)


def test_a_clock_that_steps_back_gives_nothing_and_takes_nothing() -> None:
    bucket = Bucket(1.0, 10.0)
    bucket.take(10.0, 100.0)
    bucket.take(0.0, 50.0)
    assert bucket.level(50.0) == bucket.level(100.0) == 0.0
    assert bucket.level(105.0) == 5.0


def test_requests_a_second() -> None:
    limiter = Limiter(Limits(requests_per_s=2.0, burst_s=1.0))
    for _ in range(2):
        entered(limiter.enter("a", 1, 0.0))
    limited = refused(limiter.enter("a", 1, 0.1))
    assert limited.reason is LimitReason.RATE
    assert limited.retry_after_s == pytest.approx(0.4)
    assert limited.numbers["requests_per_s"] == 2.0
    assert "tokens_per_s" not in limited.numbers  # no limit is no number
    entered(limiter.enter("b", 1, 0.1))
    entered(limiter.enter("a", 1, 0.5))


def test_tokens_a_second_follow_what_was_really_used() -> None:
    limiter = Limiter(Limits(tokens_per_s=100.0, burst_s=1.0))
    first = entered(limiter.enter("a", 100, 0.0))
    assert refused(limiter.enter("a", 50, 0.0)).retry_after_s == pytest.approx(0.5)
    limiter.leave(first, 40, 0.0)
    limiter.leave(first, 0, 0.0)  # a second time does nothing
    second = entered(limiter.enter("a", 50, 0.0))
    limiter.leave(second, 250, 0.0)  # far more than expected: the debt is paid before the next
    assert refused(limiter.enter("a", 10, 0.0)).retry_after_s == pytest.approx(2.0)


def test_a_refusal_costs_nothing() -> None:
    limiter = Limiter(Limits(requests_per_s=1.0, tokens_per_s=10.0, burst_s=10.0))
    entered(limiter.enter("a", 95, 0.0))
    for _ in range(50):
        refused(limiter.enter("a", 10, 0.0))
    entered(limiter.enter("a", 5, 0.0))


def test_concurrency_counts_what_runs_and_waits() -> None:
    limiter = Limiter(Limits(concurrent=2))
    first = entered(limiter.enter("a", 1, 0.0, ends_s=30.0))
    entered(limiter.enter("a", 1, 0.0, ends_s=20.0))
    limited = refused(limiter.enter("a", 1, 5.0))
    assert (limited.reason, limited.retry_after_s) == (LimitReason.CONCURRENCY, 15.0)
    assert limited.numbers == {"in_hand": 2, "allowed": 2}
    limiter.leave(first, 1, 5.0)
    entered(limiter.enter("a", 1, 5.0))
    assert (limiter.in_hand("a"), limiter.in_hand("b"), len(limiter)) == (2, 0, 2)


@pytest.mark.parametrize("limits", [Limits(concurrent=0), Limits(requests_per_s=0), Limits(tokens_per_s=0)])
def test_a_limit_of_zero_lets_nobody_in_ever(limits: Limits) -> None:
    assert refused(Limiter(limits).enter("a", 1, 0.0)).retry_after_s == inf


def test_limits_of_one_tenant() -> None:
    limiter = Limiter(tenants={"a": Limits(concurrent=1)})
    entered(limiter.enter("a", 1, 0.0))
    refused(limiter.enter("a", 1, 0.0))
    for _ in range(100):
        entered(limiter.enter("b", 1e9, 0.0))


def test_strangers_are_forgotten_and_debtors_are_not() -> None:
    limiter = Limiter(Limits(tokens_per_s=1.0))
    limiter.leave(entered(limiter.enter("debtor", 1e9, 0.0)), 1e9, 0.0)
    for step in range(10 * FORGET_ABOVE):
        limiter.leave(entered(limiter.enter(f"tenant-{step}", 1, float(step))), 1, float(step))
    assert len(limiter._accounts) <= 3 * FORGET_ABOVE
    refused(limiter.enter("debtor", 1, 10.0 * FORGET_ABOVE))


def test_whoever_has_the_whole_answer_has_it_in_hand_no_more_and_still_pays_for_it() -> None:
    limiter = Limiter(Limits(tokens_per_s=1.0, burst_s=100.0, concurrent=1))
    first = limiter.enter("a", 50.0, 0.0)
    assert isinstance(first, Pass)
    limiter.answered(first)
    assert limiter.in_hand("a") == 0
    second = limiter.enter("a", 10.0, 0.0)
    assert isinstance(second, Pass)
    limiter.leave(first, 90.0, 0.0)
    limiter.leave(second, 10.0, 0.0)
    assert isinstance(limiter.enter("a", 1.0, 0.0), Limited)
    assert isinstance(limiter.enter("a", 1.0, 1.0), Pass)
    limiter.answered(Pass("nobody", 1.0))
