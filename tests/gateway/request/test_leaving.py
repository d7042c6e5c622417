"""A client that leaves: in every phase the engines stop at once and everything held comes back."""

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.simulated import reader
from gateway.request.errors import Reason
from gateway.request.holds import ReservationHold, TicketHold
from gateway.request.legs import Mode
from gateway.request.phase import Phase
from gateway.request.prefilling import Prefilled, while_reserved
from gateway.request.record import Record
from gateway.request.running import Running
from proto.work import PrefillDone
from tests.gateway.fleet import FOUR, PAIR, SOLO, Answer, Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S

#: Where a leg hangs so that the request stays in a phase, and on which worker.
HANGS: dict[Phase, dict[str, list[dict[str, Any]]]] = {
    Phase.PREFILLING: {"p0": [{"kind": "hang", "phase": "prefill", "where": {"leg": "prefill"}}]},
    Phase.HANDED_OFF: {},
    Phase.DECODING: {"d0": [{"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}, "for_s": 0.5}]},
}


def running(one: Fleet) -> int:
    return sum(member.held["running"] for member in one.members.values())


@pytest.mark.parametrize("phase", [Phase.PREFILLING, Phase.DECODING])
@pytest.mark.parametrize("n", [1, 3])
async def test_b34_b27_leaving_frees_both_sides(phase: Phase, n: int) -> None:
    async with fleet(PAIR, scripts={name: {"faults": rules} for name, rules in HANGS[phase].items()}) as one:
        record = await one.leave_in(intent(prompt(200), n=n, max_tokens=50), phase)
        await until(lambda: running(one) == 0, 0.25)
        await one.settled(1.0)
        assert record.phase is Phase.CANCELLED
        assert (record.reason, record.failed_phase) == (Reason.CLIENT_GONE, phase)
        assert one.watcher.records == [record]


async def test_b34_leaving_in_the_middle_of_an_answer() -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(40), max_tokens=4000, ignore_eos=True)
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for _ in stream:
                if record.completion_tokens > 20:
                    break
        await until(lambda: running(one) == 0, 0.25)
        await one.settled(1.0)
        assert record.phase is Phase.CANCELLED


async def test_leaving_the_queue() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one:
        big = intent(prompt(40), max_tokens=80, ignore_eos=True)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(one.ask(big))
            await until(lambda: one.cluster.integrity().reservations == 1)
            record = await one.leave_in(intent(prompt(41), max_tokens=80), Phase.QUEUED)
            assert one.cluster.integrity().queued == 0
        assert record.phase is Phase.CANCELLED
        assert len(first.result().tokens()) == 80
        await one.settled()


async def test_leaving_before_the_first_step() -> None:
    """The request's task is cancelled before it has run at all."""
    async with fleet(PAIR) as one:
        wanted = intent(prompt(40))
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record):
            pass
        assert record.phase is Phase.CANCELLED
        assert one.watcher.records == [record]
        await one.settled()


async def test_leaving_while_a_reserve_call_is_under_way() -> None:
    async with fleet(PAIR) as one:
        for steps in range(12):
            wanted = intent(prompt(40), max_tokens=50)
            async with one.lifecycle.open(wanted, one.record(wanted)):
                for _ in range(steps):
                    await asyncio.sleep(0)
        await one.settled()


@pytest.mark.parametrize("delay_ms", range(0, 40, 2))
async def test_b30_leaving_at_any_moment(delay_ms: int) -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(100), max_tokens=30)
        async with one.lifecycle.open(wanted, one.record(wanted)):
            await asyncio.sleep(delay_ms / 1000)
        await one.settled(1.0)
        after = await one.ask(intent(prompt(50)))
        assert after.tokens() == expected(prompt(50), intent().sampling)


async def test_the_last_piece_is_enough_for_done() -> None:
    """A reader that stops at the finish, without asking for the end of the stream, has not left early."""
    async with fleet(PAIR) as one:
        wanted = intent(prompt(40))
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for batch in stream:
                if any(piece.finish for piece in batch):
                    break
        assert record.phase is Phase.DONE
        await one.settled()


@pytest.mark.slow
async def test_b30_b37_two_hundred_leave_fifty_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random disconnects in all phases among survivors: the survivors' texts are right, nothing is left over."""
    dice = random.Random(11)
    monkeypatch.setattr(reader, "CALL_TIMEOUT_S", HANG_S)  # what takes so long on a busy machine is not lost
    patient = config(deadlines=dict.fromkeys(("queue_s", "reserve_s", "release_s"), HANG_S))
    async with fleet(FOUR, profile="toy", kv_lease_s=10 * HANG_S, settings=patient) as one:
        leaving: dict[str, tuple[Phase, asyncio.Task[Answer]]] = {}

        def moved(record: Record, before: Phase, after: Phase, now_s: float) -> None:
            phase, task = leaving.get(record.request_id, (None, None))
            if task is not None and after is phase:
                task.cancel()

        monkeypatch.setattr(one.watcher, "phase_changed", moved)

        async def leave(seed: int) -> None:
            """Every second one at the very moment that a phase begins, so that it is met on any machine."""
            await asyncio.sleep(dice.random() * 0.2)
            wanted = intent(prompt(20 + seed % 300, seed), n=1 + seed % 3, max_tokens=100)
            task = asyncio.create_task(one.ask(wanted))
            if seed % 2:
                leaving[wanted.request_id] = (dice.choice((Phase.PREFILLING, Phase.DECODING)), task)
            else:
                await asyncio.sleep(dice.random() * 0.3)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        async def stay(seed: int) -> None:
            await asyncio.sleep(dice.random() * 0.2)
            wanted = intent(prompt(30 + seed % 100, 1000 + seed), max_tokens=60)
            answer = await one.ask(wanted)
            assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)

        room = asyncio.Semaphore(60)

        async def in_turn(request: Coroutine[Any, Any, None]) -> None:
            async with room:
                await request

        async with asyncio.TaskGroup() as tasks:
            for seed in range(250):
                tasks.create_task(in_turn(stay(seed) if seed % 5 == 0 else leave(seed)))
        await one.settled(1.0)
        phases = {record.failed_phase for record in one.watcher.records if record.phase is Phase.CANCELLED}
        assert {Phase.PREFILLING, Phase.DECODING} <= phases
        assert len(one.watcher.records) == 250
        ours = ("request-", "release", "attach", "abandoned")
        assert sum(task.get_name().startswith(ours) for task in asyncio.all_tasks()) <= 4 * len(one.members)


@pytest.mark.parametrize("n", [1, 2, 3])
async def test_leaving_at_the_very_moment_of_dispatch(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that would drive the sequence is cancelled before its first step."""
    start = Running.start

    def start_and_leave(self: Running, *arguments: Any) -> None:
        start(self, *arguments)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    monkeypatch.setattr(Running, "start", start_and_leave)
    async with fleet(SOLO, profile="toy") as one:
        wanted = intent(prompt(40), n=n, max_tokens=5000, ignore_eos=True)
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record):
            await until(lambda: record.phase.final)
        await one.settled(1.0)


class Held:
    released = False

    def release(self) -> None:
        self.released = True


async def test_a_ticket_that_arrives_as_its_reader_leaves_is_given_back() -> None:
    """The reply is there, but the request is cancelled before it can take it."""
    held, reply, ended = Held(), asyncio.Event(), asyncio.get_running_loop().create_future()
    decode = SimpleNamespace(connection=SimpleNamespace(attachment=SimpleNamespace(ended=ended)))
    hold = cast(ReservationHold, SimpleNamespace(worker=decode, lapsed=asyncio.Event().wait))
    done = PrefillDone((1,), None)

    async def work() -> Prefilled:
        await reply.wait()
        return Prefilled(done, Mode.CARRY, cast(TicketHold, held))

    reader = asyncio.create_task(while_reserved(hold, work(), asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0.01)
    reply.set()
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert reader.cancelled()
    assert held.released
