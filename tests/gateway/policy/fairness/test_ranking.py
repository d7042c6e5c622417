"""Ranks that change."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.fairness.ranking import SLACK, Ranking
from tests.gateway.policy.fairness.serving import UNHURRIED

MOVES = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=200)


@UNHURRIED
@given(MOVES)
def test_the_first_is_the_least_whatever_changed_before(moves: list[tuple[int, int | None]]) -> None:
    ranking: Ranking[int] = Ranking()
    ranks: dict[int, tuple[int, int]] = {}
    for step, (key, rank) in enumerate(moves):
        if rank is None:
            ranking.drop(key)
            ranks.pop(key, None)
        else:
            ranking.put(key, float(rank))
            ranks[key] = (rank, step)
        assert ranking.first() == (min(ranks, key=lambda each: ranks[each]) if ranks else None)
        assert ranking.best() == ((float(min(ranks.values())[0]),) if ranks else None)
        assert len(ranking) == len(ranks)


def test_stale_records_do_not_pile_up() -> None:
    ranking: Ranking[int] = Ranking()
    ranking.put(0, 0.0)  # stays on top, so nothing below is ever looked at
    for key in range(1, 10_000):
        ranking.put(key, float(key))
        ranking.drop(key)
        assert len(ranking._run) + len(ranking._heap) <= 2 * len(ranking) + SLACK
    assert ranking.first() == 0


def test_what_comes_in_order_is_not_sorted() -> None:
    ranking: Ranking[int] = Ranking()
    for key in range(100):
        ranking.put(key, 0.0, float(key))
    assert not ranking._heap
    ranking.put(1_000, 0.0, 3.5)  # one that comes late
    assert len(ranking._heap) == 1
    served = []
    while (first := ranking.first()) is not None:
        served.append(first)
        ranking.drop(first)
    assert served == [0, 1, 2, 3, 1_000, *range(4, 100)]
