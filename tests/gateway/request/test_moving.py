"""The steps of one move: whatever happens in each, what is held has one owner and is given back once."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.policy.admission.move import By
from gateway.request.moving import TRANSITIONS, Move, Order, Outcome, Step, Why
from tests.waiting import until


class Held:
    """A place or a ticket."""

    def __init__(self) -> None:
        self.released = 0
        self.trip = None
        self.gone = asyncio.Event()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.worker = SimpleNamespace(connection=SimpleNamespace(attachment=SimpleNamespace(ended=ended)))

    def release(self) -> None:
        self.released += 1

    async def lapsed(self) -> None:
        await self.gone.wait()


class Source:
    """The run that is left: `willing` says whether it still can be."""

    def __init__(self, willing: bool = True) -> None:
        self.willing = willing
        self.asked: list[str] = []

    def hand_over(self) -> bool:
        self.asked.append("hand_over")
        return self.willing

    def leave(self) -> bool:
        self.asked.append("leave")
        return self.willing


class Trial:
    """One move with stand-ins for everything that it talks to."""

    def __init__(self, by: By = By.TRANSFER, *, willing: bool = True, late_s: float = 60.0) -> None:
        self.place: Any = Held()
        self.ticket: Any = Held()
        self.source = Source(willing)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.outcomes: list[Outcome] = []
        order = Order(Why.OVERRUN, "d1", by, {})
        self.move = Move(order, self.source, self._ask, late_s, lambda _, outcome: self.outcomes.append(outcome))

    async def _ask(self) -> Any:
        return await self.answer

    async def granted(self) -> "Trial":
        self.answer.set_result(self.place)
        await until(lambda: self.move.step is not Step.ASKING)
        return self

    async def over(self, outcome: Outcome, released: tuple[int, int]) -> None:
        await until(lambda: self.move.over)
        self.move.close()
        assert self.outcomes == [outcome]
        assert (self.place.released, self.ticket.released) == released


async def test_the_straight_way() -> None:
    one = await Trial().granted()
    assert (one.move.step, one.source.asked) == (Step.HANDING, ["hand_over"])
    assert one.move.take() is None
    one.move.handed(one.ticket)
    assert one.move.step is Step.HANDED
    assert one.move.take() == (one.place, one.ticket)
    assert one.move.take() is None
    assert not one.outcomes
    one.move.arrived(pulled=True)
    await one.over(Outcome.MOVED, (0, 0))  # place and ticket are the run's


async def test_by_computing_anew() -> None:
    one = await Trial(By.RECOMPUTE).granted()
    assert (one.move.step, one.source.asked) == (Step.HANDED, ["leave"])
    assert one.move.take() == (one.place, None)
    one.move.arrived(pulled=False)
    await one.over(Outcome.RECOMPUTED, (0, 0))


async def test_a_refusal_leaves_the_answer_alone() -> None:
    one = Trial()
    one.answer.set_result(None)
    await until(lambda: one.move.over)
    assert one.source.asked == []
    await one.over(Outcome.REFUSED, (0, 0))


@pytest.mark.parametrize("by", list(By))
async def test_an_answer_that_has_ended_meanwhile_gives_the_place_back(by: By) -> None:
    one = await Trial(by, willing=False).granted()
    await one.over(Outcome.ENDED, (1, 0))


async def test_a_place_that_lapses_ends_the_move() -> None:
    one = await Trial().granted()
    one.place.gone.set()
    await one.over(Outcome.LATE, (1, 0))


async def test_a_target_that_is_lost_ends_the_move() -> None:
    one = await Trial().granted()
    one.place.worker.connection.attachment.ended.set_result(None)
    await one.over(Outcome.LATE, (1, 0))


async def test_a_source_that_takes_too_long_keeps_nothing_reserved() -> None:
    one = await Trial(late_s=0.01).granted()
    await until(lambda: one.move.over)
    one.move.handed(one.ticket)  # it comes all the same, and nobody will read
    assert one.move.take() is None
    await one.over(Outcome.LATE, (1, 1))


async def test_what_is_asked_for_when_the_answer_ends_is_given_up() -> None:
    one = Trial()
    await asyncio.sleep(0)
    one.move.close()
    await until(lambda: one.answer.cancelled())
    await one.over(Outcome.ENDED, (0, 0))


async def test_what_an_earlier_order_has_ended_is_read_where_it_was_to_go_now() -> None:
    """That order was late, and its ticket comes while the next place is asked for: nobody is asked to hand over once more."""
    one = Trial()
    one.move.handed(one.ticket)
    assert one.move.take() is None
    one.answer.set_result(one.place)
    await one.move.settled()
    assert one.source.asked == []
    assert one.move.take() == (one.place, one.ticket)
    one.move.arrived(pulled=True)
    await one.over(Outcome.MOVED, (0, 0))


async def test_one_that_has_left_and_is_refused_keeps_no_kv() -> None:
    one = Trial()
    one.move.handed(one.ticket)
    one.answer.set_result(None)
    await one.move.settled()
    assert one.move.take() is None
    await one.over(Outcome.REFUSED, (0, 1))


async def test_one_that_has_left_and_is_to_be_computed_anew_is() -> None:
    one = Trial(By.RECOMPUTE)
    one.move.handed(one.ticket)
    one.answer.set_result(one.place)
    await one.move.settled()
    assert one.source.asked == []
    assert one.move.take() == (one.place, None)
    one.move.arrived(pulled=False)
    await one.over(Outcome.RECOMPUTED, (0, 1))


async def test_one_that_has_left_is_lost_when_its_client_leaves_while_a_place_is_asked_for() -> None:
    one = Trial()
    await asyncio.sleep(0)
    one.move.handed(one.ticket)
    one.move.close()
    await until(lambda: one.answer.cancelled())
    await one.over(Outcome.LOST, (0, 1))


async def test_nobody_waits_for_the_word_of_the_other_worker_while_an_answer_runs() -> None:
    one = Trial()
    await one.move.settled()
    assert one.move.step is Step.ASKING
    one.move.close()


async def test_a_source_that_keeps_it_gives_the_place_back_at_once() -> None:
    one = await Trial(late_s=3600.0).granted()
    one.move.stays()
    assert one.move.over
    await one.over(Outcome.KEPT, (1, 0))


@pytest.mark.parametrize("step", [Step.ASKING, Step.HANDED, Step.GOING])
async def test_only_a_source_that_is_asked_can_keep_it(step: Step) -> None:
    """What comes at another time is news of an earlier move, which was late."""
    one = Trial()
    if step is not Step.ASKING:
        await one.granted()
        one.move.handed(one.ticket)
    if step is Step.GOING:
        one.move.take()
    one.move.stays()
    assert one.move.step is step
    assert not one.outcomes
    one.move.close()


CLOSED: list[tuple[Callable[[Trial], None], Outcome, tuple[int, int]]] = [
    (lambda one: None, Outcome.ENDED, (1, 0)),
    (lambda one: one.move.handed(one.ticket), Outcome.LOST, (1, 1)),
]


@pytest.mark.parametrize(("until_then", "outcome", "released"), CLOSED)
async def test_closing_gives_back_what_is_held(
    until_then: Callable[[Trial], None], outcome: Outcome, released: tuple[int, int]
) -> None:
    one = await Trial().granted()
    until_then(one)
    one.move.close()
    await one.over(outcome, released)


async def test_what_was_taken_and_never_arrived_is_lost() -> None:
    one = await Trial().granted()
    one.move.handed(one.ticket)
    one.move.take()
    one.move.close()
    await one.over(Outcome.LOST, (0, 0))
    one.move.arrived(pulled=True)
    assert one.outcomes == [Outcome.LOST]


def test_every_step_can_end_and_nothing_leads_out_of_the_end() -> None:
    assert all(Step.OVER in following for step, following in TRANSITIONS.items() if step is not Step.OVER)
    assert not TRANSITIONS[Step.OVER]
    reached = {Step.ASKING}
    for step in Step:  # they are in order
        reached |= TRANSITIONS[step]
    assert reached == set(Step)
