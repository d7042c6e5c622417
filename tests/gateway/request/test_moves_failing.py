"""Moves that go wrong between the two workers, and clients that leave meanwhile: the answer goes on, or nothing is held."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from gateway.request.errors import Reason
from gateway.request.moving import Outcome
from gateway.request.phase import Phase
from proto.reservation import ReserveRequest
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import Fleet, expected, fleet, until
from tests.gateway.request.sending import (
    DUO,
    LONG,
    MOVES,
    Gate,
    Sending,
    asked,
    long,
    outcomes,
    patience_over,
    running,
    send,
    settings,
)
from tests.waiting import HANG_S

#: A pull that hangs until the test says so, or its worker dies.
STUCK: Mapping[str, Any] = {"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}}
#: Once.
BROKEN: Mapping[str, Any] = {"kind": "refuse", "where": {"leg": "pull"}, "fault": "kv_load_failed"}


@pytest.mark.parametrize("script", [{"kind": "reset", "where": {"leg": "pull"}}, BROKEN])
async def test_kv_that_does_not_arrive_is_computed_there(script: Mapping[str, Any]) -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent(script=script)
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.retries, answer.record.completion_tokens) == (1, 1, LONG)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled(10.0)


async def test_a_target_that_fails_before_its_first_token_is_left_again() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent(script={"kind": "fail", "where": {"leg": "pull"}, "after_tokens": 0, "fault": "internal"})
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.decode_worker, answer.record.retries) == (sending.source_id, 1)
        assert (outcomes(one), answer.record.moves) == ({Outcome.LOST: 1}, 0)
        await one.settled(10.0)


async def test_an_answer_that_is_sent_away_has_its_retries_anew() -> None:
    """The decode leg's one retry was used before its first token; the pull of the move fails all the same."""
    fails = {"faults": [{"kind": "fail", "after_tokens": 0, "fault": "internal", "times": 1}]}
    async with fleet(DUO, profile="toy", scripts={"d0": fails}, settings=settings()) as one:
        wanted = long()
        await one.cluster.drain("d1")
        sending = Sending(one, wanted)
        await until(lambda: one.accounts and one.accounts[wanted.request_id].retries == 1)
        await one.cluster.drain("d1", resume=True)
        await sending.sent(script=BROKEN)
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.retries) == (1, 2)
        await one.settled(10.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["early_expiry", "stale_epoch"])
async def test_a_ticket_that_is_no_good_is_not_the_end_of_the_answer(kind: str) -> None:
    fault = {"kind": kind, **({"after_s": 0.0} if kind == "early_expiry" else {})}
    scripts = {name: {"faults": [fault]} for name, _ in DUO}
    brief = settings(routing={"lease_margin_s": 0.1})
    async with fleet(DUO, profile="toy", scripts=scripts, kv_lease_s=3.0, settings=brief) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent()
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.retries, one.watcher.expired) == (1, int(kind == "early_expiry"))
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled(10.0)


async def test_a_ticket_too_old_to_dispatch_is_released_and_its_kv_computed_anew() -> None:
    hasty = settings(routing={"lease_margin_s": 5.0})
    async with fleet(DUO, profile="toy", kv_lease_s=4.0, settings=hasty) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent()
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.retries, one.watcher.expired) == (0, 1)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled()


async def test_kv_that_does_not_arrive_is_not_kept_while_it_is_computed_anew() -> None:
    """Its ticket was released with the end of the answer: the full worker held both its KV and nobody's."""
    async with fleet(DUO, profile="toy", kv_lease_s=HANG_S, settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent(script=BROKEN)
        target = sending.target
        sending.let_go(sending.source_id)
        await until(lambda: one.accounts[wanted.request_id].retries == 1)
        await until(lambda: sending.source.idle)
        assert not sending.task.done()
        assert not target.idle
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled()


async def test_a_source_that_dies_while_it_is_asked_is_a_lost_worker() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = Sending(one, long())
        await sending.sent()
        sending.source.engine._die("scripted")
        _, error = await sending.task
        assert error is not None
        assert error.reason in (Reason.WORKER_LOST, Reason.DECODE_FAILED)
        assert outcomes(one) == {Outcome.ENDED: 1}
        sending.let_go()
        await until(lambda: sending.target.idle and one.cluster.integrity().idle)


def reserves(one: Fleet, patch: pytest.MonkeyPatch) -> list[ReserveRequest]:
    """What workers are asked for from now on."""
    seen: list[ReserveRequest] = []
    for name, _ in DUO:
        client = one.cluster.worker(name).connection.client  # type: ignore[union-attr]  # None would fail the test as well

        async def noted(request: ReserveRequest, *rest: Any, call: Any = client.reserve) -> Any:
            seen.append(request)
            return await call(request, *rest)

        patch.setattr(client, "reserve", noted)
    return seen


async def test_a_target_that_dies_during_the_pull_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer stands in line as what it is, and not as the prompt it was; nor does it end because it was kept waiting."""
    policy = {**MOVES, "rule": "forecast"}
    async with fleet(DUO, profile="toy", settings=settings(policy=policy)) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent(script=STUCK)
        sending.let_go()
        await until(lambda: sending.target.worker.decode.gate.under_way == 1)
        came = one.accounts[wanted.request_id].completion_tokens
        seen = reserves(one, monkeypatch)
        patience_over(monkeypatch)
        sending.target.engine._die("scripted")
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.decode_worker, answer.record.retries) == (sending.source_id, 1)
        last = [each for each in seen if each.request_id.startswith(wanted.request_id)][-1]  # probes reserve, too
        assert (last.prompt_tokens, last.growth_tokens, last.generated_tokens) == (40 + came, LONG - came, came)
        assert (last.limit_tokens, last.emergency) == (LONG, False)  # it has no worker that it would be lost by waiting
        assert max(last.lengths) <= LONG
        # it did not arrive there
        assert (outcomes(one), answer.record.moves) == ({Outcome.LOST: 1}, 0)
        await until(lambda: sending.source.idle and one.cluster.integrity().idle)


async def left(sending: Sending) -> None:
    await sending.abandoned()
    sending.let_go()
    await sending.one.settled(10.0)
    assert sending.one.accounts[sending.wanted.request_id].phase is Phase.CANCELLED


async def test_a_client_that_leaves_while_the_target_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = Sending(one, long())
        each = await sending.begun()
        reached, reply = asyncio.Event(), asyncio.Event()
        client = one.cluster.worker(sending.target.name).connection.client  # type: ignore[union-attr]  # None would fail the test as well
        call = client.reserve

        async def slowly(*args: Any) -> Any:
            granted = await call(*args)
            reached.set()
            await reply.wait()
            return granted

        monkeypatch.setattr(client, "reserve", slowly)
        send(each)
        await reached.wait()
        await sending.abandoned()
        reply.set()
        await left(sending)
        assert outcomes(one) == {Outcome.ENDED: 1}


async def test_a_client_that_leaves_before_the_ticket_is_there() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = Sending(one, long())
        await sending.sent()
        assert asked(sending.source)
        await left(sending)
        assert outcomes(one) == {Outcome.ENDED: 1}


async def test_a_client_that_leaves_as_the_ticket_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sequence was aborted here while the ticket was on its way: it is given back, and no lease is waited for."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = Sending(one, long())
        await sending.sent()
        attachment = one.cluster.worker(sending.source_id).connection.attachment  # type: ignore[union-attr]  # None would fail the test as well
        dispatch, tickets = attachment._dispatch, list[str]()

        def leaving(frame: Any) -> None:
            for sequence, delta in frame:
                if delta.ticket is not None:
                    tickets.append(delta.ticket.ticket_id)
                    attachment.abort(sequence)
                    sending.task.cancel()
            dispatch(frame)

        monkeypatch.setattr(attachment, "_dispatch", leaving)
        sending.let_go()
        await asyncio.gather(sending.task, return_exceptions=True)
        assert tickets
        await one.settled(10.0)


async def test_a_client_that_leaves_during_the_pull() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        sending = Sending(one, long())
        await sending.begun()
        pull = Hold(sending.target.engine.injector)
        await sending.sent(script=STUCK)
        sending.let_go()
        await pull.begun.wait()
        await sending.abandoned()
        pull.let_go()
        await left(sending)
        assert outcomes(one) == {Outcome.LOST: 1}


async def test_a_stop_string_that_matches_during_a_move_ends_the_answer() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted, gate = long(), Gate(one)
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for _ in stream:
                if (each := running(one, wanted)) is not None and each.generated_tokens == 3:
                    source = one.members[each.worker_id]
                    send(each)
                    await until(partial(asked, source))
                    await stream.stop_choice(0)
        gate.let_go()
        assert record.phase is Phase.DONE
        assert outcomes(one) == {Outcome.ENDED: 1}
        await one.settled(10.0)
