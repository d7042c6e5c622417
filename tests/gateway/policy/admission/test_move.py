"""R-26, R-27: whether an answer goes on elsewhere, by the cheaper way, and only where everything that it may become has room."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission.balance import Balance, Standing, even_out, full_ones
from gateway.policy.admission.move import MOST_MOVES, By, Target, fare
from gateway.policy.admission.overrun import Answer, Prices, Response

BOTH = frozenset(By)
PRICES = Prices(prefill_tokens_per_s=10_000.0, pause_s=0.0)


def to(*free: float, rate: float = 1e9) -> list[Target]:
    return [Target(f"d{index}", blocks, rate) for index, blocks in enumerate(free)]


def test_slowing_the_link_flips_the_choice_and_both_prices_are_told() -> None:
    fast = fare(10, 100_000_000, 0.5, 60.0, BOTH, to(50, rate=1e9))
    slow = fare(10, 100_000_000, 0.5, 60.0, BOTH, to(50, rate=1e8))
    assert fast is not None
    assert slow is not None
    assert (fast.by, slow.by) == (By.TRANSFER, By.RECOMPUTE)
    assert fast.transfer_s == fast.seconds == pytest.approx(0.1)
    assert slow.transfer_s == pytest.approx(1.0)
    assert fast.recompute_s == slow.recompute_s == slow.seconds == 0.5


def test_a_link_that_was_never_measured_is_no_way() -> None:
    assert fare(10, 1, 0.5, 60.0, frozenset({By.TRANSFER}), to(50, rate=0.0)) is None
    booked = fare(10, 1, 0.5, 60.0, BOTH, to(50, rate=0.0))
    assert booked is not None
    assert booked.by is By.RECOMPUTE


def test_it_goes_where_most_room_is_left_and_nowhere_without() -> None:
    booked = fare(10, 1, 0.5, 60.0, BOTH, to(9, 30, 20))
    assert booked is not None
    assert booked.target.worker_id == "d1"
    assert fare(31, 1, 0.5, 60.0, BOTH, to(9, 30, 20)) is None


def test_an_answer_that_ends_soon_is_not_worth_the_pause() -> None:
    assert fare(10, 100_000_000, 0.5, 0.09, BOTH, to(50)) is None
    assert fare(10, 100_000_000, 0.5, 0.11, BOTH, to(50)) is not None


def test_the_pause_is_more_than_the_bytes() -> None:
    booked = fare(10, 100_000_000, 0.5, 0.31, BOTH, to(50), pause_s=0.2)
    assert booked is not None
    assert booked.transfer_s == pytest.approx(0.1)
    assert booked.seconds == pytest.approx(0.3)
    assert fare(10, 100_000_000, 0.5, 0.29, BOTH, to(50), pause_s=0.2) is None


def test_nobody_goes_back_to_where_it_has_been_or_is_sent_on_for_ever() -> None:
    booked = fare(10, 1, 0.5, 60.0, BOTH, to(50, 40), been={"d0"})
    assert booked is not None
    assert booked.target.worker_id == "d1"
    assert fare(10, 1, 0.5, 60.0, BOTH, to(50, 40), been={"d0", "d1"}) is None
    often = {f"other{index}" for index in range(MOST_MOVES)}
    assert fare(10, 1, 0.5, 60.0, BOTH, to(50), been=often) is None


def test_what_must_not_move_does_not() -> None:
    assert fare(10, 1, 0.5, 60.0, frozenset(), to(50)) is None


# balance


def at(name: str, held: int, total: int = 100) -> Standing:
    return Standing(name, total, held)


def answer(name: str, blocks: int, growth: int = 0, left_s: float = 1e6) -> Answer:
    return Answer(name, "chat", blocks, 16 * blocks, 50, 1_000_000 * blocks, growth, left_s)


def moved(full: Standing, others: Sequence[Standing], answers: Sequence[Answer], free: float = 90.0) -> str:
    targets = [Target(one.worker_id, free, 1e9) for one in others]
    return ",".join(even_out(full, others, targets, answers, PRICES).request_ids)


def full_names(workers: Sequence[Standing], balance: Balance) -> list[tuple[str, list[str]]]:
    return [(full.worker_id, [one.worker_id for one in emptier]) for full, emptier in full_ones(workers, balance)]


def test_only_a_full_worker_beside_one_with_room_is_put_right() -> None:
    balance = Balance(above=0.8, spread=0.3)
    assert not full_names([], balance)
    assert not full_names([at("a", 79), at("b", 0)], balance)  # not full
    assert not full_names([at("a", 90), at("b", 65)], balance)  # no spread
    assert full_names([at("b", 10), at("a", 90), at("c", 65)], balance) == [("a", ["b"])]


def test_the_next_full_worker_is_looked_at_too_the_fullest_first() -> None:
    """One of answers that cannot move would keep all others as they are."""
    balance = Balance(above=0.8, spread=0.3)
    workers = [at("b", 10), at("c", 85), at("a", 90), at("d", 57)]
    assert full_names(workers, balance) == [("a", ["b", "d"]), ("c", ["b"])]


def test_one_overlong_answer_leaves_for_the_worker_that_has_room() -> None:
    assert moved(at("a", 90), [at("b", 10)], [answer("long", 35), answer("short", 5, left_s=0.001)]) == "long"


def test_an_answer_that_would_make_the_other_the_fuller_one_stays() -> None:
    assert moved(at("a", 90), [at("b", 10)], [answer("all", 90)]) == ""
    assert moved(at("a", 90), [at("b", 10)], [answer("half", 40)]) == "half"
    assert moved(at("a", 90), [at("b", 10)], [answer("more", 41)]) == ""


def test_the_one_that_takes_most_growth_along_goes_first() -> None:
    answers = [answer("ending", 20, growth=1), answer("growing", 20, growth=30)]
    assert moved(at("a", 90), [at("b", 10)], answers) == "growing"
    assert moved(at("a", 90), [at("b", 10)], answers, free=25.0) == "ending"  # there is no room for the other


def test_the_record_has_both_shares_and_both_prices() -> None:
    action = even_out(at("a", 90), [at("b", 10)], to(0, 90, rate=1e9)[1:], [answer("x", 20)], PRICES)
    assert action.response is Response.NONE  # d1 is none of the emptier ones
    action = even_out(at("a", 90), [at("d0", 10)], to(90), [answer("x", 20)], PRICES)
    assert action.response is Response.MOVE
    assert [(move.request_id, move.worker_id, move.by) for move in action.moves] == [("x", "d0", By.TRANSFER)]
    assert action.numbers["full_share"] == pytest.approx(0.9)
    assert action.numbers["other_share"] == pytest.approx(0.1)
    assert action.numbers["move_s"] == pytest.approx(0.02)
    assert action.numbers["recompute_s"] == pytest.approx(0.032)


@given(
    held=st.lists(st.integers(0, 100), min_size=2, max_size=5),
    blocks=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_every_move_narrows_the_spread_and_they_come_to_an_end(held: list[int], blocks: list[int]) -> None:
    """However it begins, nothing is sent back and forth: each move brings two workers closer, until none would."""
    workers = {f"w{index}": at(f"w{index}", sum(blocks) if not index else share) for index, share in enumerate(held)}
    where = {f"a{index}": "w0" for index in range(len(blocks))}
    sizes = {f"a{index}": size for index, size in enumerate(blocks)}
    balance = Balance(above=0.01, spread=0.01)
    for _ in range(200):
        found = next(full_ones(list(workers.values()), balance), None)
        if found is None:
            break
        full, others = found
        here = [answer(name, sizes[name]) for name, worker in where.items() if worker == full.worker_id]
        targets = [Target(one.worker_id, 1_000.0, 1e9) for one in others]
        action = even_out(full, others, targets, here, PRICES)
        if not action.moves:
            break
        (move,) = action.moves
        size, other = sizes[move.request_id], workers[move.worker_id]
        before = full.share - other.share
        workers[full.worker_id] = at(full.worker_id, full.held_blocks - size)
        workers[move.worker_id] = at(move.worker_id, other.held_blocks + size)
        assert abs(workers[full.worker_id].share - workers[move.worker_id].share) < before
        where[move.request_id] = move.worker_id
    else:
        raise AssertionError("answers go back and forth")
