"""Which of the workers that others hold is asked."""

from gateway.policy.insistence import Insistence


def test_the_same_worker_is_asked_while_the_same_bid_waits_and_then_the_next() -> None:
    insistence = Insistence()
    assert [insistence.at({"a", "b"}, arrival) for arrival in (1, 1, 2, 3)] == ["a", "a", "b", "a"]


def test_a_worker_that_cannot_take_it_is_left_for_the_next() -> None:
    insistence = Insistence()
    assert insistence.at({"a", "b"}, 1) == "a"
    insistence.in_vain()
    assert insistence.at({"a", "b"}, 1) == "b"


def test_nobody_is_asked_where_nobody_else_holds_anything() -> None:
    insistence = Insistence()
    assert insistence.at((), 1) is None
    assert insistence.at({"b"}, 1) == "b"
    assert insistence.at({"a"}, 1) == "a"
