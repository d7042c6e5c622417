"""R-08, R-11, R-24: the responses come in their order, each with its price, and never as a failed allocation."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission.move import MOST_MOVES, By, Move, Target
from gateway.policy.admission.overrun import (
    YIELDING,
    Action,
    Answer,
    OverrunPolicy,
    Pressure,
    Prices,
    Response,
    decide,
)

PRICES = Prices(prefill_tokens_per_s=10_000.0, pause_s=0.0, again=0.0)
CAPPED = OverrunPolicy((Response.CAP, Response.MOVE, Response.PREEMPT), cap_tokens=500)


def answer(name: str, blocks: int, klass: str = "chat", generated: int = 100) -> Answer:
    return Answer(name, klass, blocks, 16 * blocks, generated, 1_000_000 * blocks)


def pressed(held: int, *answers: Answer, growth: int = 0, free: int = 0) -> Pressure:
    return Pressure(1_000, 100, held, growth, answers, [Target("roomy", free, 1e9)])


def test_the_responses_get_harsher_as_the_pool_is_used_up() -> None:
    victim = answer("a", 300)
    seen = [decide(pressed(held, victim), {}, PRICES).response for held in range(880, 1_020, 5)]
    order = [Response.NONE, Response.POOL, Response.THROTTLE, Response.QUEUE, Response.PREEMPT]
    assert list(dict.fromkeys(seen)) == order
    assert seen == sorted(seen, key=order.index)


def test_growth_until_the_next_look_counts_before_it_happens() -> None:
    assert decide(pressed(900), {}, PRICES).response is Response.NONE
    assert decide(pressed(900, answer("a", 9), growth=101), {}, PRICES).response is Response.PREEMPT


def test_throttling_goes_from_all_to_none() -> None:
    shares = [decide(pressed(900 + spent), {}, PRICES).numbers["admit_share"] for spent in (26, 50, 75)]
    assert shares == [pytest.approx(0.98), pytest.approx(0.5), pytest.approx(0.0)]


def test_an_answer_past_its_declared_budget_ends_before_anything_is_preempted() -> None:
    short, long = answer("short", 200, "capped", generated=499), answer("long", 50, "capped", generated=500)
    action = decide(pressed(1_010, short, long), {"capped": CAPPED}, PRICES)
    assert (action.response, action.request_ids, action.freed_blocks) == (Response.CAP, ("long",), 50)


def test_a_class_decides_for_its_own_answers_alone() -> None:
    action = decide(pressed(1_010, answer("a", 50, generated=9_999)), {"capped": CAPPED}, PRICES)
    assert action.response is Response.PREEMPT  # chat has no cap


def test_an_answer_moves_only_where_it_fits() -> None:
    two = (answer("a", 40), answer("b", 60))
    assert decide(pressed(1_010, *two, free=30), {}, PRICES).response is Response.PREEMPT
    action = decide(pressed(1_060, *two, free=50), {}, PRICES)
    assert (action.response, action.request_ids, action.freed_blocks) == (Response.MOVE, ("a",), 40)
    assert action.moves == (Move("a", "roomy", By.TRANSFER),)


def test_room_is_given_away_once() -> None:
    three = [answer(name, 40) for name in "abc"]
    targets = [Target("d0", 50, 1e9), Target("d1", 45, 1e9)]
    action = decide(Pressure(1_000, 100, 1_100, 0, three, targets), {}, PRICES)
    assert sorted(move.worker_id for move in action.moves) == ["d0", "d1"]
    assert len(action.request_ids) == 2


def test_what_it_holds_must_fit_not_what_it_may_become_and_it_must_live_to_use_it() -> None:
    """It is computed anew if it stays: the room that it still grows into may be found when it does."""
    growing = replace(answer("a", 40), growth_blocks=2_000)
    assert decide(pressed(1_010, growing, free=39), {}, PRICES).response is Response.PREEMPT
    assert decide(pressed(1_010, growing, free=70), {}, PRICES).response is Response.MOVE
    ending = replace(growing, left_s=0.079)  # the pause takes 0.04 s
    assert decide(pressed(1_010, ending, free=70), {}, PRICES).response is Response.PREEMPT
    assert decide(pressed(1_010, replace(growing, ways=frozenset()), free=70), {}, PRICES).response is Response.PREEMPT


def test_an_engine_that_hands_nothing_over_preempts_by_itself() -> None:
    stays = replace(answer("a", 40), ways=frozenset({By.RECOMPUTE}))
    assert decide(pressed(1_010, stays, free=500), {"chat": OverrunPolicy((Response.MOVE,))}, PRICES).moves == ()
    slow = Pressure(1_000, 100, 1_010, 0, [answer("a", 40)], [Target("far", 500, 1e6)])
    assert [move.by for move in decide(slow, {}, PRICES).moves] == [By.RECOMPUTE]


def test_nobody_moves_to_a_worker_that_would_have_less_room_then_than_the_one_that_is_left() -> None:
    """30 blocks are wanted. Without the one of 60 there are 30 free here, so there must be as many there with it."""
    for free, response in ((89, Response.PREEMPT), (90, Response.MOVE)):
        assert decide(pressed(1_030, answer("a", 60), free=free), {}, PRICES).response is response


def test_the_fixed_part_of_a_pause_makes_one_large_move_cheaper_than_many_small_ones() -> None:
    answers = [replace(answer(f"young{index}", 5), growth_blocks=60) for index in range(8)]
    large = replace(answer("large", 40), growth_blocks=60)
    held = pressed(1_010, *answers, large, free=500)
    assert decide(held, {}, replace(PRICES, pause_s=0.1)).request_ids == ("large",)
    assert "large" not in decide(held, {}, PRICES).request_ids


def test_an_answer_that_would_be_dear_to_lose_there_stays_where_a_cheaper_one_can_go() -> None:
    """Who comes last is preempted first. Of 30 blocks that are wanted, six young answers bring as much as the old one."""
    young = [replace(answer(f"young{index}", 5), growth_blocks=60) for index in range(6)]
    old = replace(answer("old", 400), growth_blocks=60)
    held = pressed(1_030, *young, old, free=900)
    assert decide(held, {}, replace(PRICES, pause_s=0.01, again=0.5)).request_ids == tuple(
        each.request_id for each in young
    )
    assert decide(held, {}, replace(PRICES, pause_s=0.1)).request_ids == ("old",)


@given(
    held=st.lists(st.integers(0, 1_000), min_size=2, max_size=5),
    blocks=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    growth=st.integers(0, 60),
)
def test_r26_answers_do_not_go_back_and_forth(held: list[int], blocks: list[int], growth: int) -> None:
    """Whoever is full sheds, look after look, while nothing ends: every move leaves the target better off than its source was,
    none goes to where it has been, and they come to an end."""
    workers = {f"w{index}": others for index, others in enumerate(held)}  # held by answers that stay
    where = {f"a{index}": "w0" for index in range(len(blocks))}
    sizes = {f"a{index}": size for index, size in enumerate(blocks)}
    been: dict[str, list[str]] = {name: [] for name in where}

    def used(worker: str) -> int:
        return workers[worker] + sum(sizes[name] for name, at in where.items() if at == worker)

    for _ in range(200):
        moves = 0
        for worker in workers:
            here = [
                replace(answer(name, sizes[name]), been=frozenset(been[name]))
                for name, at in where.items()
                if at == worker
            ]
            targets = [Target(other, 1_000 - used(other), 1e9) for other in workers if other != worker]
            action = decide(Pressure(1_000, 100, used(worker), growth, here, targets), {}, PRICES)
            for move in action.moves:
                been[move.request_id].append(worker)
                where[move.request_id] = move.worker_id
                assert used(move.worker_id) <= used(worker) + growth
                assert used(move.worker_id) <= 1_000
                moves += 1
        if not moves:
            break
    else:
        raise AssertionError("answers go back and forth")
    for name, left in been.items():
        assert len(set(left)) == len(left) <= MOST_MOVES
        assert where[name] not in left


@pytest.mark.parametrize("first", [Response.CAP, Response.MOVE])
def test_the_order_of_a_class_is_kept(first: Response) -> None:
    """One of its answers could do both, the other cannot be capped: what the class prefers comes first."""
    order = (first, Response.MOVE if first is Response.CAP else Response.CAP)
    two = answer("both", 40, "c", generated=500), answer("moves", 40, "c", generated=10)
    action = decide(pressed(1_010, *two, free=400), {"c": OverrunPolicy(order, cap_tokens=500)}, PRICES)
    assert action.response is first


def test_the_answer_that_frees_most_for_its_bytes_moves() -> None:
    two = answer("ending", 40), replace(answer("growing", 40), growth_blocks=100)
    assert decide(pressed(1_010, *two, free=400), {}, PRICES).request_ids == ("growing",)


def test_the_price_is_counted_before_and_the_cheapest_for_each_block_yields() -> None:
    dear = Answer("dear", "chat", 50, 80_000, 10, 500_000_000)
    cheap = Answer("cheap", "chat", 50, 800, 10, 50_000_000)
    action = decide(pressed(1_010, dear, cheap), {}, Prices(10_000.0, reload_bytes_per_s=1e9))
    assert action.request_ids == ("cheap",)
    assert action.numbers["recompute_tokens"] == 800
    assert action.numbers["recompute_s"] == pytest.approx(0.08)
    assert action.numbers["reload_s"] == action.numbers["cost_s"] == pytest.approx(0.05)


def test_several_yield_when_one_is_not_enough() -> None:
    action = decide(pressed(1_060, *(answer(f"a{index}", 25) for index in range(5))), {}, PRICES)
    assert (len(action.request_ids), action.freed_blocks, action.numbers["short_blocks"]) == (3, 75, 60)


def test_r11_the_pool_saves_preempted_tokens() -> None:
    def preempted(pool: int) -> float:
        # 20 answers overrun together by 4 blocks each.
        answers = [answer(f"a{index}", 49) for index in range(20)]
        action = decide(Pressure(1_000, pool, 980 - pool + 4 * 20, 0, answers), {}, PRICES)
        return action.numbers.get("recompute_tokens", 0.0) if action.response is Response.PREEMPT else 0.0

    assert preempted(pool=0) > 0
    assert preempted(pool=100) == 0


def test_a_policy_that_cannot_be_kept_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="declares"):
        OverrunPolicy((Response.CAP,))
    with pytest.raises(ValueError, match="asked"):
        OverrunPolicy((Response.POOL,))


@given(
    held=st.integers(0, 1_500),
    growth=st.integers(0, 200),
    free=st.integers(0, 300),
    blocks=st.lists(st.integers(1, 200), max_size=8),
)
def test_whatever_yields_is_enough_or_everything_of_its_kind(
    held: int, growth: int, free: int, blocks: list[int]
) -> None:
    answers = [answer(f"a{index}", size, "capped", 450 + size) for index, size in enumerate(blocks)]
    action: Action = decide(pressed(held, *answers, growth=growth, free=free), {"capped": CAPPED}, PRICES)
    if action.response in YIELDING:
        short = held + growth - 1_000
        assert action.freed_blocks == sum(a.held_blocks for a in answers if a.request_id in action.request_ids)
        assert action.numbers["short_blocks"] == short > 0
        but_the_last = action.request_ids[:-1]
        assert sum(a.held_blocks for a in answers if a.request_id in but_the_last) < short
        if action.response is Response.MOVE:
            assert action.freed_blocks <= free
    else:
        assert held + growth <= 1_000 or not answers
