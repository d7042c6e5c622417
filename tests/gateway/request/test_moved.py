"""Running answers that go on at another decode worker, over real workers: the same tokens, and nothing held anywhere."""

from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.policy.admission.move import By
from gateway.policy.standing import Door
from gateway.request.intent import Intent
from gateway.request.moving import Outcome, Why
from gateway.request.phase import Phase
from proto.reservation import ReserveRequest
from proto.sampling import StructuredKind, StructuredOutput
from proto.work import FinishReason
from proto.worker import Role
from tests.engine.simulated.hold import Hold
from tests.examples import first
from tests.gateway.fleet import BLOCK, Answer, Fleet, expected, fleet, prompt, until
from tests.gateway.request.sending import DUO, LONG, Sending, long, other_than, outcomes, running, send, settings


async def moved(one: Fleet, wanted: Intent, by: By = By.TRANSFER) -> Answer:
    """The whole answer of one that was sent elsewhere after some tokens."""
    sending = Sending(one, wanted)
    await sending.sent(by)
    answer = await sending.answer()
    assert answer.record.decode_worker == sending.target.name
    return answer


@pytest.mark.parametrize("length", first(2, [BLOCK - 4, BLOCK - 3, BLOCK - 2, 40]))
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
        sending = Sending(one, wanted, tokens=1)
        each = await sending.begun()
        assert each.ways == frozenset()
        send(each)
        assert running(one, wanted).leaving is False  # type: ignore[union-attr]  # None would fail the test as well
        assert (await sending.answer()).record.moves == 0
        await one.settled()


async def test_an_answer_that_has_moved_says_where_it_has_been() -> None:
    """It may go on, but not back: by what it says the policy bounds its moves."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        assert (await sending.begun()).been == frozenset()
        source = sending.source_id
        await sending.sent()
        sending.let_go(source)
        await until(lambda: outcomes(one))
        each = await sending.begun()
        assert (each.worker_id, each.been, each.left) == (other_than(source), frozenset({source}), "")
        assert each.ways == frozenset(By)
        assert (await sending.answer()).record.moves == 1
        await one.settled()


async def test_one_that_arrives_does_not_leave_where_it_arrives() -> None:
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.begun()
        pull = Hold(sending.target.engine.injector)
        await sending.sent(script={"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}})
        each = running(one, wanted)
        assert each is not None
        assert (each.worker_id, each.leaving, each.ways) == (sending.source_id, True, frozenset())
        sending.let_go()
        await pull.begun.wait()
        each = running(one, wanted)
        assert each is not None
        assert (each.worker_id, each.leaving, each.ways) == (other_than(sending.source_id), False, frozenset())
        assert each.left == sending.source_id  # whose KV is still there
        pull.let_go()
        assert (await sending.answer()).record.moves == 1
        await one.settled()


async def test_a_target_that_has_no_room_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for prompts either: smaller ones may fit."""
    shut: list[float] = []
    monkeypatch.setattr(Door, "refused", lambda _, now_s: shut.append(now_s))
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        wanted = long()
        sending = Sending(one, wanted)
        await sending.sent(script={"kind": "full"})
        answer = await sending.answer()
        assert (outcomes(one), shut) == ({Outcome.REFUSED: 1}, [])
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.moves, answer.record.handoffs, answer.record.decode_worker) == (0, 0, sending.source_id)
        sending.target.engine.injector.use(Script())
        await one.settled()


@pytest.mark.parametrize("why", list(Why))
async def test_a_move_says_that_it_is_one_and_only_want_of_kv_is_an_emergency(
    why: Why, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker grants in one what it grants nobody else: what a client asks for never is, whatever its body says, and neither is a
    move that could wait. Nobody waits for any of them."""
    async with fleet(DUO, profile="toy", settings=settings()) as one:
        asked: list[tuple[str, ReserveRequest]] = []
        for name, _ in DUO:
            client = one.cluster.worker(name).connection.client  # type: ignore[union-attr]  # None would fail the test as well

            async def noted(request: ReserveRequest, *rest: Any, name: str = name, call: Any = client.reserve) -> Any:
                asked.append((name, request))
                return await call(request, *rest)

            monkeypatch.setattr(client, "reserve", noted)
        sending = Sending(one, long())
        each = await sending.begun()
        send(each, why=why)
        answer = await sending.answer()
        assert answer.record.moves == 1
        (source, first), (target, second) = asked
        assert (source, target) == (sending.source_id, sending.target.name)
        assert (first.moves, first.emergency, first.generated_tokens) == (False, False, 0)
        assert (second.moves, second.emergency) == (True, why is Why.OVERRUN)
        assert second.generated_tokens >= 3  # of the prompt there, so many are the answer's own
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
