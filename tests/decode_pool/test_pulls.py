"""Never more pulls than allowed, in the order they came, and none forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode_pool.pulls import Pull, PullGate


@given(limit=st.integers(1, 4), ends=st.lists(st.integers(0, 20), max_size=60), total=st.integers(1, 20))
def test_the_limit_holds_and_everyone_gets_a_turn_or_has_left(limit: int, ends: list[int], total: int) -> None:
    gate, launched = PullGate(limit), list[int]()
    pulls: list[Pull] = []
    for number in range(total):
        pull = Pull(gate, lambda number=number: launched.append(number))  # type: ignore[misc]  # mypy infers no lambda with a default
        pulls.append(pull)
        gate.enter(pull)
        assert gate.under_way <= limit
    for number in ends:
        if number < total:
            pulls[number].end()
            assert gate.under_way <= limit
            assert gate.under_way == limit or gate.waiting == 0
    assert launched == sorted(launched)
    for pull in pulls:
        pull.end()
    assert (gate.under_way, gate.waiting) == (0, 0)


def test_one_that_leaves_while_waiting_is_never_launched() -> None:
    gate, launched = PullGate(1), list[str]()
    first, second, third = (Pull(gate, lambda name=name: launched.append(name)) for name in "abc")  # type: ignore[misc]  # mypy infers no lambda with a default
    for pull in (first, second, third):
        gate.enter(pull)
    second.end()
    assert gate.waiting == 1
    first.end()
    assert launched == ["a", "c"]


def test_a_launch_that_ends_at_once_lets_the_next_one_in() -> None:
    gate, launched = PullGate(1), list[int]()
    pulls: list[Pull] = []

    def launch() -> None:
        launched.append(len(launched))
        pulls[len(launched) - 1].end()

    for _ in range(3):
        pull = Pull(gate, launch)
        pulls.append(pull)
        gate.enter(pull)
    assert launched == [0, 1, 2]
    assert gate.under_way == 0


def test_a_long_line_of_launches_that_end_at_once_is_no_deep_recursion() -> None:
    """Tickets that expired while they waited for a pull that hung."""
    gate, launched = PullGate(1), list[int]()
    slow = Pull(gate, lambda: None)
    gate.enter(slow)
    pulls: list[Pull] = []

    def launch(number: int) -> None:
        launched.append(number)
        pulls[number].end()

    for number in range(2000):
        pulls.append(Pull(gate, lambda number=number: launch(number)))  # type: ignore[misc]  # mypy infers no lambda with a default
        gate.enter(pulls[number])
    slow.end()
    assert launched == list(range(2000))
    assert (gate.under_way, gate.waiting) == (0, 0)


def test_a_gate_that_lets_nobody_through_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        PullGate(0)
