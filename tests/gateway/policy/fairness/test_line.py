"""Short before long, within bounds."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.fairness.line import Line
from tests.gateway.policy.fairness.serving import UNHURRIED


def serve(line: Line, costs: dict[int, float]) -> int:
    head = line.head()
    assert head is not None
    line.serve(costs[head])
    line.drop(head)
    return head


def order(stretch: float, arriving: list[float]) -> list[int]:
    line, costs = Line(stretch), dict(enumerate(arriving))
    for arrival, cost in costs.items():
        line.push(arrival, cost)
    return [serve(line, costs) for _ in arriving]


def test_first_come_first_served() -> None:
    assert order(1.0, [9.0, 1.0, 5.0, 1.0]) == [0, 1, 2, 3]


def test_shortest_first() -> None:
    assert order(inf, [9.0, 1.0, 5.0, 1.0]) == [1, 3, 2, 0]


def test_a_long_one_is_overtaken_and_then_no_more() -> None:
    line, costs = Line(2.0), {0: 10.0}
    line.push(0, 10.0)
    overtaken = 0
    while True:
        costs[overtaken + 1] = 1.0
        line.push(overtaken + 1, 1.0)
        if serve(line, costs) == 0:
            break
        overtaken += 1
    assert overtaken == 10  # (stretch - 1) x its own service


#: How many arrive before each turn, with their service.
PATTERN = st.lists(st.lists(st.integers(1, 20), max_size=4), max_size=40)


@pytest.mark.parametrize("stretch", [1.0, 1.5, 3.0])
@UNHURRIED
@given(pattern=PATTERN)
def test_nobody_waits_longer_than_the_bound_whatever_arrives(stretch: float, pattern: list[list[int]]) -> None:
    line, costs, bounds = Line(stretch), dict[int, float](), dict[int, float]()
    for arriving in pattern + [[]] * sum(map(len, pattern)):
        for cost in arriving:
            arrival = len(costs)
            costs[arrival] = float(cost)
            bounds[arrival] = line.served + stretch * (line.queued + cost) + 20
            line.push(arrival, float(cost))
        if line:
            head = serve(line, costs)
            assert line.served <= bounds[head]
    assert not line
    assert line.queued == pytest.approx(0.0)
