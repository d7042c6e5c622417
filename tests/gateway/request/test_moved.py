"""Running answers that go on at another decode worker, over real workers: the same tokens, and nothing held anywhere."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.config import GatewayConfig
from gateway.policy.admission.move import By
from gateway.request import moves
from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from gateway.request.moving import Order, Outcome, Why
from gateway.request.phase import Phase
from gateway.request.standing import Growing
from proto.sampling import StructuredKind, StructuredOutput
from proto.work import FinishReason
from proto.worker import Role
from tests.engine.simulated.hold import before_each_step
from tests.gateway.fleet import BLOCK, Answer, Fleet, Member, config, expected, fleet, intent, prompt, until

DUO = (("d0", Role.DECODE), ("d1", Role.DECODE))
#: Answers move, though nothing here is ever full enough to say so.
MOVES: Mapping[str, Any] = {"classes": {"default": {"on_overrun": ["move"]}}}
LONG = 400


def settings(**more: Any) -> GatewayConfig:
    """Decode workers compute their prompts, so that a hand-off is a move."""
    routing = {"on_no_prefill": "local", **more.pop("routing", {})}
    return config(policy=more.pop("policy", MOVES), routing=routing, **more)


def long(length: int = 40, **more: Any) -> Intent:
    return intent(prompt(length), max_tokens=LONG, ignore_eos=True, **more)


def running(one: Fleet, wanted: Intent) -> Growing | None:
    found = (each for each in one.lifecycle.overruns.growing() if each.name.startswith(wanted.request_id))
    return next(found, None)


async def begun(one: Fleet, wanted: Intent, tokens: int = 3) -> Growing:
    def there() -> bool:
        each = running(one, wanted)
        return each is not None and each.generated_tokens >= tokens

    await until(there)
    each = running(one, wanted)
    assert each is not None
    return each


def other_than(name: str) -> str:
    return "d1" if name == "d0" else "d0"


def send(each: Growing, by: By = By.TRANSFER, why: Why = Why.OVERRUN) -> str:
    target = other_than(each.worker_id)
    each.move(Order(why, target, by, {"move_bytes": 1.0}))
    return target


def asked(source: Member) -> bool:
    """Its engine was told to hand something over, and has not."""
    return any(each.handing_over for each in source.engine._generations.values())


def outcomes(one: Fleet) -> dict[str, int]:
    return {outcome: count for (_, outcome), count in one.lifecycle.overruns.moves.items()}


async def moved(one: Fleet, wanted: Intent, by: By = By.TRANSFER, tokens: int = 3) -> Answer:
    """The whole answer of one that was sent elsewhere after so many tokens."""
    task = asyncio.create_task(one.ask(wanted))
    each = await begun(one, wanted, tokens)
    target = send(each, by)
    answer = await task
    assert answer.record.decode_worker == target
    return answer


@pytest.mark.parametrize("length", [BLOCK - 4, BLOCK - 3, BLOCK - 2, 40])
async def test_the_answer_is_that_of_one_engine(length: int) -> None:
    """Cut around the end of a KV block, too."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long(length=length)
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert answer.finish() is FinishReason.LENGTH
        record = answer.record
        assert (record.moves, record.handoffs, record.retries, record.completion_tokens) == (1, 1, 0, LONG)
        assert record.kv_bytes > 0
        assert record.path == "local"  # that it came by
        assert outcomes(one) == {Outcome.MOVED: 1}
        await one.settled()
        phases = one.watcher.path_of(wanted.request_id)
        assert phases[-5:] == [Phase.DECODING, Phase.RESERVED, Phase.HANDED_OFF, Phase.DECODING, Phase.DONE]


async def test_one_that_was_handed_off_already_moves_on() -> None:
    roles = (("p0", Role.PREFILL), *DUO)
    async with fleet(roles, profile="toy", settings=settings()) as one:
        wanted = long()
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.handoffs, answer.record.path) == (2, "remote")
        await one.settled()


async def test_what_was_computed_can_be_computed_anew_instead() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        answer = await moved(one, wanted, By.RECOMPUTE)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.handoffs, answer.record.kv_bytes) == (1, 0, 0)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled()


async def test_logprobs_stop_tokens_and_the_minimum_go_along() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        whole = expected(prompt(40), long().sampling)
        wanted = long(logprobs=2, stop_token_ids=(whole[2], whole[-1]), min_tokens=LONG - 40)
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(prompt(40), wanted.sampling)
        entries = [entry for piece in answer.pieces for entry in piece.logprobs]
        assert [entry.token_ids[0] for entry in entries] == list(answer.tokens())
        await one.settled()


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 3, "temperature": 1.0},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"n": 2},
        {"structured": StructuredOutput(StructuredKind.JSON_OBJECT)},
    ],
)
async def test_what_a_move_could_change_stays(more: dict[str, Any]) -> None:
    """Seeds and penalties count what one engine has drawn, a grammar what it has read; several answers share their prompt's KV."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long(**more)
        task = asyncio.create_task(one.ask(wanted))
        try:
            await until(lambda: running(one, wanted) is not None or task.done())
            if (each := running(one, wanted)) is not None:
                assert each.ways == frozenset()
                send(each)
                assert running(one, wanted).leaving is False  # type: ignore[union-attr]
        finally:
            answer = await task
        assert answer.record.moves == 0
        await one.settled()


async def test_an_answer_moves_once() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        send(await begun(one, wanted))
        await until(lambda: outcomes(one))
        each = await begun(one, wanted)
        assert each.ways == frozenset()
        send(each)
        assert (await task).record.moves == 1
        await one.settled()


async def test_a_target_that_has_no_room_changes_nothing() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        each = await begun(one, wanted)
        full = one.members[other_than(each.worker_id)]
        full.engine.injector.use(Script.model_validate({"faults": [{"kind": "full"}]}))
        send(each)
        await until(lambda: outcomes(one))
        answer = await task
        assert outcomes(one) == {Outcome.REFUSED: 1}
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.handoffs, answer.record.decode_worker) == (0, 0, each.worker_id)
        full.engine.injector.use(Script())
        await one.settled()


async def test_the_books_of_fluid_roles_follow_it() -> None:
    both = (("d0", Role.BOTH), ("d1", Role.BOTH))
    chosen = settings(routing={"fluid": {"ttft_ms": 2000, "tpot_ms": 100}})
    async with fleet(both, profile="toy", settings=chosen) as one:
        wanted = long()
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        await one.settled()
        roles = one.lifecycle.roles
        assert roles is not None
        assert roles.row.ways["moved"] == 1
        assert [roles.policy.book(name).promised for name, _ in both] == [0, 0]


# what goes wrong between the two


async def interrupted(one: Fleet, wanted: Intent, script: Mapping[str, Any]) -> tuple[Answer, RequestError | None]:
    """The outcome of an answer that was sent to a worker where this goes wrong from then on."""
    task = asyncio.create_task(one.outcome(wanted))
    each = await begun(one, wanted)
    one.members[other_than(each.worker_id)].engine.injector.use(Script.model_validate({"faults": [script]}))
    send(each)
    return await task


@pytest.mark.parametrize(
    "script",
    [
        {"kind": "reset", "where": {"leg": "pull"}},
        {"kind": "refuse", "where": {"leg": "pull"}, "fault": "kv_load_failed"},
        {"kind": "fail", "where": {"leg": "pull"}, "after_tokens": 0, "fault": "internal", "times": 1},
    ],
)
async def test_kv_that_does_not_arrive_is_computed_there(script: Mapping[str, Any]) -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        answer, error = await interrupted(one, wanted, script)
        assert error is None, error
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.retries, answer.record.completion_tokens) == (1, 1, LONG)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled(10.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["early_expiry", "stale_epoch"])
async def test_a_ticket_that_is_no_good_is_not_the_end_of_the_answer(kind: str) -> None:
    fault = {"kind": kind, **({"after_s": 0.0} if kind == "early_expiry" else {})}
    scripts = {name: {"faults": [fault]} for name, _ in DUO}
    brief = settings(routing={"lease_margin_s": 0.1})
    async with fleet(DUO, profile="toy", scripts=scripts, kv_lease_s=3.0, settings=brief) as one:
        wanted = long()
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.retries, one.watcher.expired) == (1, int(kind == "early_expiry"))
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled(10.0)


async def test_a_ticket_too_old_to_dispatch_is_released_and_its_kv_computed_anew() -> None:
    hasty = settings(routing={"lease_margin_s": 5.0})
    async with fleet(DUO, profile="toy", kv_lease_s=4.0, settings=hasty) as one:
        wanted = long()
        answer = await moved(one, wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.retries, one.watcher.expired) == (0, 1)
        assert outcomes(one) == {Outcome.RECOMPUTED: 1}
        await one.settled()


@pytest.mark.slow
async def test_a_source_that_hands_over_too_late_is_believed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place was given up; the answer stands in line like a prompt, and goes on with what it has."""
    monkeypatch.setattr(moves, "LATE_S", 0.1)
    hang = {"faults": [{"kind": "hang", "phase": "decode", "after_tokens": 6, "for_s": 0.5}]}
    scripts = {name: hang for name, _ in DUO}
    async with fleet(DUO, profile="toy", scripts=scripts, settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        await begun(one, wanted, 6)
        send(await begun(one, wanted, 6))
        await until(lambda: outcomes(one))
        assert outcomes(one) == {Outcome.LATE: 1}
        assert one.cluster.integrity().reservations == 1
        answer = await task
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert answer.record.moves == 0
        await one.settled(10.0)


async def test_a_source_that_dies_while_it_is_asked_is_a_lost_worker() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.outcome(wanted))
        each = await begun(one, wanted)
        source = one.members[each.worker_id]
        stuck = asyncio.Event()
        before_each_step(source.engine.injector, stuck.wait)
        send(each)
        await until(lambda: asked(source))
        source.engine._die("scripted")
        _, error = await task
        assert error is not None
        assert error.reason in (Reason.WORKER_LOST, Reason.DECODE_FAILED)
        assert outcomes(one) == {Outcome.ENDED: 1}
        stuck.set()
        target = one.members[other_than(each.worker_id)]
        await until(lambda: target.idle and one.cluster.integrity().idle)


async def test_a_target_that_dies_during_the_pull_is_replaced() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.outcome(wanted))
        each = await begun(one, wanted)
        target = one.members[other_than(each.worker_id)]
        hang = {"faults": [{"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}}]}
        target.engine.injector.use(Script.model_validate(hang))
        send(each)
        await until(lambda: target.worker.decode.gate.under_way == 1)
        target.engine._die("scripted")
        answer, error = await task
        assert error is None, error
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert answer.record.decode_worker == each.worker_id
        assert answer.record.retries == 1
        source = one.members[each.worker_id]
        await until(lambda: source.idle and one.cluster.integrity().idle)


# clients that leave


async def left(one: Fleet, wanted: Intent, task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await one.settled(10.0)
    assert one.accounts[wanted.request_id].phase is Phase.CANCELLED


async def test_a_client_that_leaves_while_the_target_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        each = await begun(one, wanted)
        asked, answer = asyncio.Event(), asyncio.Event()
        client = one.cluster.worker(other_than(each.worker_id)).connection.client  # type: ignore[union-attr]
        call = client.reserve

        async def slowly(*args: Any) -> Any:
            reply = await call(*args)
            asked.set()
            await answer.wait()
            return reply

        monkeypatch.setattr(client, "reserve", slowly)
        send(each)
        await asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        answer.set()
        await one.settled(10.0)
        assert outcomes(one) == {Outcome.ENDED: 1}


async def test_a_client_that_leaves_before_the_ticket_is_there() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        each = await begun(one, wanted)
        source = one.members[each.worker_id]
        stuck = asyncio.Event()
        before_each_step(source.engine.injector, stuck.wait)
        send(each)
        await until(lambda: asked(source))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stuck.set()
        await one.settled(10.0)
        assert outcomes(one) == {Outcome.ENDED: 1}


async def test_a_client_that_leaves_as_the_ticket_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sequence was aborted here while the ticket was on its way: it is given back, and no lease is waited for."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        each = await begun(one, wanted)
        attachment = one.cluster.worker(each.worker_id).connection.attachment  # type: ignore[union-attr]
        dispatch, tickets = attachment._dispatch, list[str]()

        def leaving(frame: Any) -> None:
            for sequence, delta in frame:
                if delta.ticket is not None:
                    tickets.append(delta.ticket.ticket_id)
                    attachment.abort(sequence)
                    task.cancel()
            dispatch(frame)

        monkeypatch.setattr(attachment, "_dispatch", leaving)
        send(each)
        await asyncio.gather(task, return_exceptions=True)
        assert tickets
        await one.settled(10.0)


async def test_a_client_that_leaves_during_the_pull() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        task = asyncio.create_task(one.ask(wanted))
        each = await begun(one, wanted)
        target = one.members[other_than(each.worker_id)]
        hang = {"faults": [{"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}, "for_s": 0.5}]}
        target.engine.injector.use(Script.model_validate(hang))
        send(each)
        await until(lambda: target.worker.decode.gate.under_way == 1)
        await left(one, wanted, task)
        assert outcomes(one) == {Outcome.LOST: 1}


async def test_a_stop_string_that_matches_during_a_move_ends_the_answer() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted, stuck = long(), asyncio.Event()
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for _ in stream:
                if (each := running(one, wanted)) is not None and each.generated_tokens > 2:
                    source = one.members[each.worker_id]
                    before_each_step(source.engine.injector, stuck.wait)
                    send(each)
                    await until(partial(asked, source))
                    await stream.stop_choice(0)
        stuck.set()
        assert record.phase is Phase.DONE
        assert outcomes(one) == {Outcome.ENDED: 1}
        await one.settled(10.0)
