"""Routing by owner, names of its own, orphans, and the death of the engine."""

import asyncio

import pytest

from engine.base import EngineDeadError, EngineOutput
from engine.dispatcher import NO_STATS, Dispatcher, News
from proto.fault import Fault, FaultError, FaultKind
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import FinishReason, SequenceDelta, Work
from tests.engine.scripted import Scripted
from tests.waiting import HANG_S

WORK = Work("r", (1, 2, 3), Sampling(max_tokens=4))
TICKET = Ticket("t", "w", "e", b"", 3, 1, 16, 0, lease_s=30.0)
END = SequenceDelta((9,), finish=FinishReason.LENGTH)


class Listener:
    def __init__(self) -> None:
        self.batches: list[News] = []

    def deliver(self, news: News) -> None:
        self.batches.append(news)

    @property
    def heard(self) -> list[tuple[int, SequenceDelta]]:
        return [(key, output.delta) for batch in self.batches for key, output in batch]


async def settle(dispatcher: Dispatcher) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    await dispatcher.settle()


async def running() -> tuple[Scripted, Dispatcher, "asyncio.Task[None]"]:
    engine = Scripted()
    dispatcher = Dispatcher(engine)
    return engine, dispatcher, asyncio.create_task(dispatcher.run())


async def test_one_step_is_one_delivery_for_each_owner() -> None:
    engine, dispatcher, task = await running()
    one, two = Listener(), Listener()
    names = [dispatcher.submit(WORK, owner, key) for owner, key in ((one, 1), (two, 1), (one, 2))]
    engine.queue.put_nowait(tuple(EngineOutput(name, SequenceDelta((5,))) for name in names))
    await settle(dispatcher)
    assert [len(batch) for batch in one.batches] == [2]
    assert [key for key, _ in one.heard] == [1, 2]
    assert [key for key, _ in two.heard] == [1]
    assert dispatcher.frames == 1
    task.cancel()


async def test_a_repeated_request_id_gets_a_name_of_its_own() -> None:
    engine, dispatcher, task = await running()
    names = {dispatcher.submit(WORK, Listener(), key) for key in range(3)}
    assert len(names) == 3
    assert {work.request_id for work in engine.submitted} == names
    assert all(work.tokens == WORK.tokens for work in engine.submitted)
    task.cancel()


async def test_an_end_is_delivered_once_and_the_request_is_forgotten() -> None:
    engine, dispatcher, task = await running()
    owner = Listener()
    name = dispatcher.submit(WORK, owner, 7)
    engine.queue.put_nowait((EngineOutput(name, END),))
    engine.queue.put_nowait((EngineOutput(name, END),))
    await settle(dispatcher)
    assert owner.heard == [(7, END)]
    assert dispatcher.live == 0
    await dispatcher.abort(name)
    assert engine.aborted == []  # B-32: the engine is not asked to abort what has ended
    task.cancel()


async def test_nothing_is_heard_of_an_aborted_request() -> None:
    engine, dispatcher, task = await running()
    owner = Listener()
    name = dispatcher.submit(WORK, owner, 1)
    await dispatcher.abort(name)
    engine.queue.put_nowait((EngineOutput(name, SequenceDelta((5,))),))
    await settle(dispatcher)
    assert owner.heard == []
    assert engine.aborted == [name]
    task.cancel()


async def test_b27_a_ticket_that_comes_after_the_abort_is_released() -> None:
    engine, dispatcher, task = await running()
    name = dispatcher.submit(WORK, Listener(), 1, hold=True)
    await dispatcher.abort(name)
    engine.queue.put_nowait((EngineOutput(name, END, TICKET),))
    await settle(dispatcher)
    assert engine.released == ["t"]
    assert dispatcher.idle
    task.cancel()


async def test_b30_a_cancelled_caller_does_not_cancel_the_abort() -> None:
    engine, dispatcher, task = await running()
    engine.abort_may_end.clear()
    name = dispatcher.submit(WORK, Listener(), 1)
    abort = asyncio.create_task(dispatcher.abort(name))
    await asyncio.sleep(0.01)
    abort.cancel()
    await asyncio.gather(abort, return_exceptions=True)
    assert (dispatcher.aborting, dispatcher.idle) == (1, False)
    engine.abort_may_end.set()
    await dispatcher.settle()
    assert (dispatcher.aborting, dispatcher.idle) == (0, True)
    task.cancel()


async def test_a_refused_request_leaves_nothing() -> None:
    engine, dispatcher, task = await running()
    engine.refuses = Fault(FaultKind.OVERLOADED, "no")
    with pytest.raises(FaultError):
        dispatcher.submit(WORK, Listener(), 1)
    assert dispatcher.live == 0
    task.cancel()


async def test_b49_death_ends_everything_in_flight_with_a_fault_at_once() -> None:
    engine, dispatcher, task = await running()
    one, two = Listener(), Listener()
    dispatcher.submit(WORK, one, 1)
    dispatcher.submit(WORK, two, 2)
    engine.queue.put_nowait(EngineDeadError("cuda error"))
    await asyncio.wait_for(task, HANG_S)
    assert dispatcher.died.is_set()
    for owner, key in ((one, 1), (two, 2)):
        ((heard, delta),) = owner.heard
        assert (heard, delta.fault) == (key, Fault(FaultKind.ENGINE_DEAD, "cuda error"))
    assert dispatcher.live == 0
    with pytest.raises(FaultError) as refused:
        dispatcher.submit(WORK, one, 3)
    assert refused.value.fault.kind is FaultKind.ENGINE_DEAD
    assert dispatcher.stats() == NO_STATS
    assert await dispatcher.release("t") is False


async def test_frames_that_break_in_an_unforeseen_way_are_a_death_too() -> None:
    engine, dispatcher, task = await running()
    owner = Listener()
    dispatcher.submit(WORK, owner, 1)
    engine.queue.put_nowait(KeyError("scheduler"))
    await asyncio.wait_for(task, HANG_S)
    ((_, delta),) = owner.heard
    assert delta.fault == Fault(FaultKind.ENGINE_DEAD, "KeyError: 'scheduler'")


async def test_a_defect_in_submit_is_a_fault_of_that_request_alone() -> None:
    engine, dispatcher, task = await running()
    engine.breaks = TypeError("no such parameter")
    with pytest.raises(FaultError) as refused:
        dispatcher.submit(WORK, Listener(), 1)
    assert refused.value.fault == Fault(FaultKind.INTERNAL, "TypeError: no such parameter")
    assert (dispatcher.live, dispatcher.dead) == (0, None)
    task.cancel()


async def test_death_that_shows_first_in_a_call_is_noticed_there() -> None:
    engine, dispatcher, task = await running()
    owner = Listener()
    dispatcher.submit(WORK, owner, 1)
    engine.dead = True
    with pytest.raises(FaultError):
        dispatcher.submit(WORK, owner, 2)
    assert dispatcher.died.is_set()
    assert [key for key, _ in owner.heard] == [1]
    task.cancel()


async def test_frames_that_just_end_are_a_death_unless_it_was_asked_for() -> None:
    for expected in (False, True):
        engine, dispatcher, task = await running()
        if expected:
            dispatcher.stopping()
        engine.queue.put_nowait(None)
        await asyncio.wait_for(task, HANG_S)
        assert dispatcher.died.is_set() is not expected


async def test_an_owner_that_breaks_does_not_cost_the_others_their_news() -> None:
    class Broken(Listener):
        def deliver(self, news: News) -> None:
            raise RuntimeError("broken")

    engine, dispatcher, task = await running()
    good = Listener()
    names = [dispatcher.submit(WORK, owner, 1) for owner in (Broken(), good)]
    engine.queue.put_nowait(tuple(EngineOutput(name, END) for name in names))
    await settle(dispatcher)
    assert good.heard == [(1, END)]
    task.cancel()
