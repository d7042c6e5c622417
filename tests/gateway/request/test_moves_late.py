"""Answers that were to be handed over and are not, or too late: they go on, and no place is kept for nothing."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from engine.base import EngineOutput
from engine.simulated.faults import Script
from gateway.policy.admission.move import By
from gateway.request import moves
from gateway.request.moving import Order, Outcome, Why
from gateway.request.roles import Trip
from proto.reservation import ReserveRequest
from proto.work import SequenceDelta
from proto.worker import Role
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import Fleet, expected, fleet, until
from tests.gateway.request.sending import DUO, Sending, long, outcomes, patience_over, running, send, settings
from tests.waiting import HANG_S


async def late(one: Fleet, patch: pytest.MonkeyPatch) -> Sending:
    """The place has been given up, and the answer will be handed over all the same."""
    patch.setattr(moves, "LATE_S", 0.1)
    sending = Sending(one, long())
    await sending.sent()
    await until(lambda: outcomes(one))
    assert outcomes(one) == {Outcome.LATE: 1}
    assert one.cluster.integrity().reservations == 1
    return sending


async def test_a_source_that_hands_over_too_late_is_believed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target has room once more: what is there is read. So it is where a gateway is late in hearing its workers."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = await late(one, monkeypatch)
        answer = await sending.answer()
        assert answer.tokens() == expected(sending.wanted.prompts[0], sending.wanted.sampling)
        record = answer.record
        assert (record.decode_worker, record.handoffs, record.retries, record.moves) == (sending.target.name, 1, 0, 1)
        assert outcomes(one) == {Outcome.LATE: 1, Outcome.MOVED: 1}
        await one.settled()


async def test_one_that_arrives_late_has_moved_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go back, its KV is on its way out where it has been, and nothing has failed."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = await late(one, monkeypatch)
        pull = Hold(sending.target.engine.injector)
        slow = {"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}}
        sending.target.engine.injector.use(Script.model_validate({"faults": [slow]}))
        sending.let_go(sending.source_id)
        await pull.begun.wait()
        each = running(one, sending.wanted)
        assert each is not None
        assert (each.worker_id, each.left, each.ways) == (sending.target.name, sending.source_id, frozenset())
        pull.let_go()
        await until(lambda: Outcome.MOVED in outcomes(one))
        each = running(one, sending.wanted)
        assert each is not None
        assert (each.been, each.left, each.ways) == (frozenset({sending.source_id}), "", frozenset(By))
        await sending.answer()
        await one.settled()


async def test_in_the_books_of_fluid_roles_nothing_is_computed_for_one_that_arrives_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its prompt counted as work that the worker had still to do."""
    both = (("d0", Role.BOTH), ("d1", Role.BOTH))
    chosen = settings(routing={"fluid": {"ttft_ms": 2000, "tpot_ms": 100}})
    async with fleet(both, profile="toy", settings=chosen) as one:
        sending = await late(one, monkeypatch)
        read: list[str] = []
        monkeypatch.setattr(Trip, "read", lambda trip: read.append(trip.placement.worker_id))
        await sending.answer()
        assert read == [sending.target.name]
        await one.settled()


async def test_a_late_ticket_that_comes_while_the_next_place_is_asked_for_is_read_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was released, and the answer computed anew after a place in line."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = await late(one, monkeypatch)
        asked, word = asyncio.Event(), asyncio.Event()
        client = one.cluster.worker(sending.target.name).connection.client  # type: ignore[union-attr]  # None would fail it

        async def in_time(request: ReserveRequest, *rest: Any, call: Any = client.reserve) -> Any:
            asked.set()
            await word.wait()
            return await call(request, *rest)

        monkeypatch.setattr(client, "reserve", in_time)
        await until(lambda: (each := running(one, sending.wanted)) is not None and bool(each.ways))
        each = running(one, sending.wanted)
        assert each is not None
        send(each)
        await asked.wait()
        sending.let_go(sending.source_id)
        await until(lambda: running(one, sending.wanted) is None)
        word.set()
        answer = await sending.answer()
        assert answer.tokens() == expected(sending.wanted.prompts[0], sending.wanted.sampling)
        record = answer.record
        assert (record.decode_worker, record.handoffs, record.retries, record.moves) == (sending.target.name, 1, 0, 1)
        assert outcomes(one) == {Outcome.LATE: 1, Outcome.MOVED: 1}
        await one.settled()


async def test_a_late_ticket_is_read_where_it_was_meant_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not where it was sent to later, in vain."""
    trio = (*DUO, ("d2", Role.DECODE))
    async with fleet(trio, profile="toy", settings=settings()) as one:
        sending = await late(one, monkeypatch)
        await until(lambda: (each := running(one, sending.wanted)) is not None and bool(each.ways))
        each = running(one, sending.wanted)
        assert each is not None
        (third,) = set(one.members) - {sending.source_id, sending.target.name}
        one.members[third].engine.injector.use(Script.model_validate({"faults": [{"kind": "full"}]}))
        each.move(Order(Why.OVERRUN, third, By.TRANSFER, {}))
        await until(lambda: Outcome.REFUSED in outcomes(one))
        answer = await sending.answer()
        assert (answer.record.decode_worker, answer.record.handoffs) == (sending.target.name, 1)
        assert outcomes(one) == {Outcome.LATE: 1, Outcome.REFUSED: 1, Outcome.MOVED: 1}
        one.members[third].engine.injector.use(Script())
        await one.settled()


async def test_without_its_place_it_stands_in_line_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on with what it has. Its KV is not kept for that."""
    async with fleet(DUO, profile="toy", kv_lease_s=HANG_S, settings=settings()) as one:
        sending = await late(one, monkeypatch)
        sending.target.engine.injector.use(Script.model_validate({"faults": [{"kind": "full"}]}))
        patience_over(monkeypatch)
        answer = await sending.answer()
        assert answer.tokens() == expected(sending.wanted.prompts[0], sending.wanted.sampling)
        assert (answer.record.decode_worker, answer.record.moves) == (sending.source_id, 0)
        assert outcomes(one) == {Outcome.LATE: 1, Outcome.REFUSED: 1}
        sending.target.engine.injector.use(Script())
        await one.settled()


async def test_a_client_that_leaves_as_a_late_ticket_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(DUO, profile="toy", kv_lease_s=HANG_S, settings=settings()) as one:
        sending = await late(one, monkeypatch)
        handed = moves.Moves.handed

        def leaving(self: moves.Moves, ticket: Any) -> None:
            sending.task.cancel()
            handed(self, ticket)

        monkeypatch.setattr(moves.Moves, "handed", leaving)
        sending.let_go()
        await asyncio.gather(sending.task, return_exceptions=True)
        await one.settled(10.0)


async def test_a_source_that_keeps_its_answer_says_so_and_nothing_stays_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place was kept for five seconds, unused."""
    monkeypatch.setattr(moves, "LATE_S", HANG_S)
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.begun()

        def keeps(name: str) -> None:
            engine = sending.source.engine
            assert sending.target.worker.decode.ledger.reservations == 1
            engine._late.append(EngineOutput(name, SequenceDelta((), stays=True)))

        monkeypatch.setattr(sending.source.engine, "hand_over", keeps)
        each = await sending.begun()
        send(each)
        sending.let_go()
        await until(lambda: outcomes(one))
        assert outcomes(one) == {Outcome.KEPT: 1}
        await until(lambda: sending.target.idle)
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.decode_worker) == (0, sending.source_id)
        await one.settled()


async def test_one_that_was_kept_is_asked_again_when_its_worker_has_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not before: it would be kept again, and the place asked for again, as fast as messages go."""
    async with fleet(DUO, profile="toy", settings=settings(health={"watch_interval_s": HANG_S})) as one:
        sending = Sending(one, long())
        each = await sending.begun()
        source = one.cluster.worker(sending.source_id)
        assert source is not None
        assert source.state is not None
        running_now = running(one, sending.wanted)
        assert running_now is not None
        assert running_now.ways

        def keeps(name: str) -> None:
            sending.source.engine._late.append(EngineOutput(name, SequenceDelta((), stays=True)))

        monkeypatch.setattr(sending.source.engine, "hand_over", keeps)
        state = source.state
        send(each)
        sending.let_go()
        await until(lambda: outcomes(one))
        after = running(one, sending.wanted)
        if after is not None and source.state is state:
            assert not after.ways
        source.heard(replace(state, sequence=state.sequence + 1000))
        again = running(one, sending.wanted)
        assert again is None or again.ways
        await sending.answer()
        await one.settled()
