"""What happens between the engine's last word and the caller's: a ticket always has an owner."""

import asyncio
from dataclasses import replace

from engine.base import EngineOutput
from engine.dispatcher import Dispatcher
from engine.duty import Duty
from prefill_pool import PrefillService
from proto.fault import Fault, FaultKind
from proto.sampling import Sampling
from proto.ticket import ReleaseTicket, Ticket
from proto.work import FinishReason, PrefillDone, SequenceDelta, Work
from proto.worker import Role
from tests.engine.scripted import Scripted
from tests.workers import worker_info
from transfer.leases import LeaseState

WORK = Work("r", (1, 2, 3), Sampling(max_tokens=1))
TICKET = Ticket("t", "w", "e", b"", 3, 1, 16, 0, lease_s=30.0)
END = SequenceDelta((9,), finish=FinishReason.LENGTH, cached_tokens=2, queue_s=0.5)
INFO = worker_info(role=Role.PREFILL)


class Bench:
    """A prefill service over a scripted engine."""

    def __init__(self) -> None:
        self.engine = Scripted()
        self.now = 0.0
        self.dispatcher = Dispatcher(self.engine)
        self.service = PrefillService(self.dispatcher, Duty("w", "e", Role.PREFILL), INFO, lambda: self.now)
        self.routing = asyncio.create_task(self.dispatcher.run())

    async def call(self) -> "asyncio.Task[PrefillDone | Fault]":
        call = asyncio.create_task(self.service.prefill(WORK))
        await asyncio.sleep(0)
        return call

    def say(self, delta: SequenceDelta, ticket: Ticket | None = None, submitted: int = -1) -> None:
        name = self.engine.submitted[submitted].request_id
        self.engine.queue.put_nowait((EngineOutput(name, delta, ticket, compute_s=0.25),))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await self.dispatcher.settle()


async def test_the_reply_carries_the_ticket_with_its_age() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(END, replace(TICKET, age_s=0.5))
    done = await call
    assert isinstance(done, PrefillDone)
    assert done.ticket == replace(TICKET, age_s=0.5)
    assert (done.tokens, done.cached_tokens, done.queue_s, done.compute_s) == ((9,), 2, 0.5, 0.25)
    assert bench.engine.released == []


async def test_b27_a_cancel_that_meets_the_end_releases_the_ticket() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(END, TICKET)
    for _ in range(10):
        if len(bench.service.leases):
            break
        await asyncio.sleep(0)
    call.cancel()  # the leg has ended, its caller has not been told yet
    await asyncio.gather(call, return_exceptions=True)
    await bench.settle()
    assert call.cancelled()
    assert bench.engine.released == ["t"]
    assert (len(bench.service.leases), bench.service.in_flight) == (0, 0)


async def test_b27_a_cancel_before_the_end_leaves_the_ticket_to_the_dispatcher() -> None:
    bench = Bench()
    call = await bench.call()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    bench.say(END, TICKET)  # the abort and the end crossed inside the engine
    await bench.settle()
    assert bench.engine.released == ["t"]
    assert len(bench.service.leases) == 0


async def test_a_release_that_comes_after_the_reader_frees_nothing_and_counts_as_read() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(END, TICKET)
    await call
    bench.engine.nothing_to_release = True
    assert await bench.service.release(ReleaseTicket("e", "t")) is False
    assert bench.service.leases.totals[LeaseState.READ] == 1
    assert bench.service.leases.totals[LeaseState.RELEASED] == 0


async def test_two_releases_at_once_free_once() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(END, TICKET)
    await call
    freed = await asyncio.gather(*(bench.service.release(ReleaseTicket("e", request_id="r")) for _ in range(3)))
    assert sorted(freed) == [False, False, True]
    assert bench.engine.released == ["t"]


async def test_b10_an_end_by_length_without_a_ticket_is_a_missing_hand_off() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(END)
    fault = await call
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.HANDOFF_MISSING


async def test_an_answer_that_stopped_by_itself_needs_no_ticket() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(SequenceDelta((2,), finish=FinishReason.STOP))
    done = await call
    assert isinstance(done, PrefillDone)
    assert (done.finish, done.ticket) == (FinishReason.STOP, None)


async def test_tokens_of_several_steps_make_one_reply() -> None:
    bench = Bench()
    call = await bench.call()
    bench.say(SequenceDelta((7,), cached_tokens=2, queue_s=0.5))
    bench.say(SequenceDelta((8,)))
    bench.say(SequenceDelta((9,), finish=FinishReason.LENGTH), TICKET)
    done = await call
    assert isinstance(done, PrefillDone)
    assert (done.tokens, done.cached_tokens, done.queue_s) == ((7, 8, 9), 2, 0.5)


async def test_b49_the_death_of_the_engine_is_the_reply_of_everyone_in_flight() -> None:
    bench = Bench()
    calls = [await bench.call() for _ in range(3)]
    bench.engine.queue.put_nowait(RuntimeError("unexpected"))
    replies = await asyncio.gather(*calls)
    assert [reply.kind for reply in replies if isinstance(reply, Fault)] == [FaultKind.ENGINE_DEAD] * 3
    late = await bench.service.prefill(WORK)
    assert isinstance(late, Fault)
    assert late.kind is FaultKind.ENGINE_DEAD
