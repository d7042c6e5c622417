"""Which answers leave a worker that takes no more of them: those that would keep it longest, a few at a time."""

from dataclasses import replace

from gateway.policy.admission.drain import AT_ONCE, leave
from gateway.policy.admission.move import By, Target
from gateway.policy.admission.overrun import Action, Answer, Prices

PRICES = Prices(prefill_tokens_per_s=1000.0)
#: A second to read, half of one to compute.
ANSWER = Answer("a", "default", 10, 500, 100, 1_000_000, growth_blocks=10, left_s=60.0)
ROOM = Target("d1", 1000.0, 1e6)


def answers(*left_s: float) -> list[Answer]:
    return [replace(ANSWER, request_id=str(at), left_s=each) for at, each in enumerate(left_s)]


def went(actions: list[Action]) -> list[str]:
    return [name for action in actions for name in action.request_ids]


def test_those_that_have_longest_to_live_go_first_and_no_more_than_may() -> None:
    some = answers(10.0, 40.0, 20.0, 30.0)
    assert went(list(leave(some, [ROOM], PRICES, 2))) == ["1", "3"]
    assert went(list(leave(some, [ROOM], PRICES, AT_ONCE))) == ["1", "3", "2", "0"]
    assert went(list(leave(some, [ROOM], PRICES, 0))) == []


def test_what_ends_before_a_move_would_pay_stays() -> None:
    assert went(list(leave(answers(1.1, 1.3), [ROOM], PRICES, AT_ONCE))) == ["1"]


def test_each_takes_its_room_from_the_next() -> None:
    """With what it is expected to gain; the next goes where there is still some."""
    some, room = (
        answers(9.0, 8.0, 7.0),
        [replace(ROOM, free_blocks=39.0), replace(ROOM, worker_id="d2", free_blocks=20.0)],
    )
    actions = list(leave(some, room, PRICES, AT_ONCE))
    assert [move.worker_id for action in actions for move in action.moves] == ["d1", "d2"]
    assert went(actions) == ["0", "1"]


def test_it_goes_the_quicker_way_and_says_why() -> None:
    (slow,) = leave(answers(60.0), [ROOM], PRICES, 1)
    (fast,) = leave(answers(60.0), [replace(ROOM, bytes_per_s=1e9)], PRICES, 1)
    assert (slow.moves[0].by, fast.moves[0].by) == (By.RECOMPUTE, By.TRANSFER)
    assert fast.numbers == {
        "held_blocks": 10.0,
        "left_s": 60.0,
        "move_bytes": 1e6,
        "move_s": 1e-3,
        "recompute_tokens": 500.0,
        "recompute_s": 0.5,
    }


def test_only_what_must_leave_goes_back_and_however_often() -> None:
    there, much = replace(ANSWER, been=frozenset({"d1"})), replace(ANSWER, been=frozenset({"d2", "d3", "d4", "d5"}))
    for answer in (there, much):
        assert went(list(leave([answer], [ROOM], PRICES, 1))) == ["a"]
        assert went(list(leave([answer], [ROOM], PRICES, 1, back=False))) == []


def test_what_cannot_move_stays() -> None:
    fixed = [replace(ANSWER, ways=frozenset())]
    assert not list(leave(fixed, [ROOM], PRICES, AT_ONCE))
    assert not list(leave(answers(60.0), [], PRICES, AT_ONCE))
    assert not list(leave(answers(60.0), [replace(ROOM, free_blocks=19.0)], PRICES, AT_ONCE))
