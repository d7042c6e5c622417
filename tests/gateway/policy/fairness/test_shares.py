"""Counters of service."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.fairness.shares import Shares
from tests.gateway.policy.fairness.serving import UNHURRIED


def shares(**weights: float) -> Shares:
    return Shares(lambda member: weights.get(member, 1.0))


def test_the_least_served_for_its_weight_is_next() -> None:
    both = shares(a=2.0)
    both.wait("a", 1)
    both.wait("b", 2)
    both.charge("a", 10.0)
    both.charge("b", 6.0)
    assert both.first() == "a"  # 10 / 2 is less than 6
    both.charge("a", 4.0)
    assert both.first() == "b"


def test_between_equals_the_earlier_is_next() -> None:
    both = shares()
    both.wait("b", 1)
    both.wait("a", 2)
    assert both.first() == "b"


def test_idleness_earns_nothing() -> None:
    both = shares()
    both.wait("a", 1)
    both.charge("a", 100.0)
    both.wait("b", 2)
    assert both.counter("b") == 100.0


def test_nobody_loses_by_having_been_served_alone() -> None:
    """VTC lifts to the last who waited when nobody does, so a burst in quiet times is not paid for later."""
    both = shares()
    for arrival in range(10):
        both.wait("a", arrival)
        both.charge("a", 100.0)
        both.rest("a")
    both.wait("b", 10)
    both.wait("a", 11)
    assert both.counter("b") == both.counter("a") == 1000.0


def test_whoever_did_not_have_to_wait_counts_as_the_last_who_waited() -> None:
    both = shares()
    both.pass_by("a")
    both.charge("a", 50.0)
    both.wait("b", 1)
    assert both.counter("b") == 50.0


def test_what_is_given_back_counts() -> None:
    both = shares()
    both.wait("a", 1)
    both.wait("b", 2)
    both.charge("a", 10.0)
    both.charge("b", 5.0)
    both.charge("a", -9.0)
    assert both.first() == "a"


def test_members_that_came_once_are_forgotten() -> None:
    many = shares()
    for arrival in range(10_000):
        member = f"tenant-{arrival}"
        many.wait(member, arrival)
        many.charge(member, 5.0)
        many.rest(member)
    assert len(many._counters) < 300


@UNHURRIED
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=80))
def test_counters_of_those_who_wait_stay_within_one_request_of_each_other(moves: list[tuple[str, int, bool]]) -> None:
    """VTC's invariant, whoever comes and goes."""
    three = shares()
    for arrival, (member, cost, leaves) in enumerate(moves):
        three.wait(member, arrival)
        first = three.first()
        assert first is not None
        three.charge(first, float(cost))
        if leaves:
            three.rest(member)
        counters = [three.counter(each) for each in three._waiting]
        assert not counters or max(counters) - min(counters) <= 9
