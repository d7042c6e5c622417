"""Fluid roles over real workers: the policy's ways are gone, answers are right on each, and nothing stays in its books."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gateway.cluster.states import WorkerStatus
from gateway.config import GatewayConfig
from gateway.policy.roles import Fluid
from gateway.request.asking import Asking, Turn
from gateway.request.errors import Reason
from gateway.request.holds import ReservationHold
from gateway.request.intent import Intent
from gateway.request.moving import Outcome, Why
from gateway.request.phase import Phase
from gateway.request.roles import Roles, WayTaken
from proto.worker import Role
from tests.engine.simulated.hold import before_each_step
from tests.gateway.fleet import Fleet, config, expected, fleet, intent, prompt, until

BOTH = (("b0", Role.BOTH), ("b1", Role.BOTH))
MIXED = (("p0", Role.PREFILL), ("b0", Role.BOTH), ("d0", Role.DECODE))


def fluid(handoff_after_tokens: int = 1, **more: Any) -> GatewayConfig:
    aims = {"ttft_ms": 1000, "tpot_ms": 50, **more}
    return config(routing={"fluid": aims, "handoff_after_tokens": handoff_after_tokens})


def roles(one: Fleet) -> Roles:
    found = one.lifecycle.roles
    assert found is not None
    return found


def books(policy: Fluid) -> dict[str, tuple[int, int, int]]:
    names = ("b0", "b1", "p0", "d0")
    return {name: (len(book.backlog), book.answers, book.coming) for name in names if (book := policy.book(name))}


@asynccontextmanager
async def running(workers: tuple[tuple[str, Role], ...], settings: GatewayConfig, **more: Any) -> AsyncIterator[Fleet]:
    """At the end the policy's books are as empty as everything else."""
    async with fleet(workers, settings=settings, **more) as one:
        yield one
        await one.settled(30.0)
        assert set(books(roles(one).policy).values()) == {(0, 0, 0)}


def loaded(one: Fleet, worker_id: str) -> None:
    """The policy believes that the worker has minutes of prompts in hand."""
    roles(one).policy.book(worker_id).backlog.add("load", 10**6)


def unloaded(one: Fleet, worker_id: str) -> None:
    roles(one).policy.book(worker_id).backlog.drop("load")


async def test_an_idle_fleet_hands_nothing_over_and_spreads_what_comes() -> None:
    async with running(BOTH, fluid(), profile="toy") as one:
        wanted = [intent(prompt(300, seed), max_tokens=12, ignore_eos=True) for seed in range(6)]
        answers = await asyncio.gather(*[one.ask(each) for each in wanted])
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert (answer.record.path, answer.record.path_reason) == ("colocated", "fluid")
        assert {answer.record.decode_worker for answer in answers} == {"b0", "b1"}
        assert roles(one).ways == {WayTaken.TOGETHER: 6}


async def test_both_workers_shake_hands_only_where_roles_are_fluid() -> None:
    async with running(BOTH, fluid()) as one:
        assert {pair.key for pair in one.cluster.pairs} == {("b0", "b1"), ("b1", "b0")}
    async with fleet(BOTH) as one:
        assert list(one.cluster.pairs) == []


async def test_a_worker_that_leans_computes_what_the_other_has_no_time_for() -> None:
    async with running(BOTH, fluid(leaning=["b0"])) as one:
        loaded(one, "b1")
        wanted = intent(prompt(300), max_tokens=12, ignore_eos=True)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        record = answer.record
        assert (record.path, record.prefill_worker, record.decode_worker) == ("remote", "b0", "b1")
        (decision,) = one.lifecycle.controller.decisions.of(wanted.request_id)
        taken, other = decision.looks[-1].document(0.0)["ways"]
        assert (taken["computed_by"], taken["worker_id"], taken["first_tokens"]) == ("b0", "b1", 1)
        assert (other["computed_by"], other["worker_id"], other["first_tokens"]) == ("b1", "b1", 0)
        assert taken["load"] < other["load"]
        assert one.watcher.handoffs[0].kv_bytes > 0
        unloaded(one, "b1")
        again = await one.ask(intent(prompt(300, 1), max_tokens=12, ignore_eos=True))
        assert (again.record.path, again.record.decode_worker) == ("colocated", "b1")
        assert roles(one).ways == {WayTaken.HANDED: 1, WayTaken.TOGETHER: 1}
        shown = one.lifecycle.policy().roles
        assert shown is not None
        assert (shown.ways, shown.leaning) == ({"together": 1, "handed": 1, "handed_later": 0, "moved": 0}, ("b0",))


async def test_answers_of_several_tokens_first_are_the_same() -> None:
    async with running(BOTH, fluid(handoff_after_tokens=8, leaning=["b0"])) as one:
        loaded(one, "b1")
        long, short = (intent(prompt(40, tokens), max_tokens=tokens, ignore_eos=True) for tokens in (30, 5))
        for each, handoffs in ((long, 1), (short, 0)):
            answer = await one.ask(each)
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert answer.record.handoffs == handoffs
        assert roles(one).ways == {WayTaken.HANDED_LATER: 2}
        unloaded(one, "b1")


async def test_a_busy_prefill_worker_hands_over_after_the_first_token() -> None:
    async with running(BOTH, fluid(handoff_after_tokens=8, leaning=["b0"])) as one:
        policy = roles(one).policy
        loaded(one, "b1")
        policy.book("b0").backlog.add("load", 5000)
        answer = await one.ask(intent(prompt(40), max_tokens=30, ignore_eos=True))
        assert (answer.record.path, roles(one).ways) == ("remote", {WayTaken.HANDED: 1})
        policy.book("b0").backlog.drop("load")
        unloaded(one, "b1")


async def test_a_mixed_fleet_uses_every_way() -> None:
    async with running(MIXED, fluid(ttft_ms=50), profile="toy") as one:
        wanted = [intent(prompt(2400 + seed, seed), max_tokens=16, ignore_eos=True) for seed in range(12)]
        for each, answer in zip(wanted, await asyncio.gather(*[one.ask(each) for each in wanted]), strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
        ways = roles(one).ways
        assert ways.total() == 12
        assert ways[WayTaken.HANDED] == len(one.watcher.handoffs) > 0
        assert ways[WayTaken.TOGETHER] > 0
        assert {record.decode_worker for record in one.watcher.records} == {"b0", "d0"}


@pytest.mark.parametrize("there", ["p0 and d0", "b0 and d0", "d0"])
async def test_where_every_worker_may_prefill_one_that_decodes_does_so_when_no_other_can(there: str) -> None:
    """`on_no_prefill` is `fail`: it says what is to be where roles are fixed."""
    workers = tuple(each for each in MIXED if each[0] in there)
    async with running(workers, fluid()) as one:
        for name in set(one.members) - {"d0"}:
            await one.cluster.drain(name)
            await one.status(name, WorkerStatus.DRAINING)
        answer = await one.ask(intent(prompt(300), max_tokens=12, ignore_eos=True))
        assert (answer.record.path, answer.record.decode_worker) == ("local", "d0")
        snapshot = one.cluster.snapshot()
        assert (snapshot.ready, snapshot.mode) == (True, "local")


async def test_prompts_and_answers_of_one_request_have_books_of_their_own() -> None:
    async with running(BOTH, fluid()) as one:
        wanted = intent(prompt(40, 1), prompt(60, 2), n=2, max_tokens=6, ignore_eos=True)
        answer = await one.ask(wanted)
        assert [len(answer.tokens(choice)) for choice in range(4)] == [6] * 4
        assert roles(one).ways == {WayTaken.TOGETHER: 2}


@pytest.mark.parametrize(
    ("phase", "handed"), [(Phase.PREFILLING, True), (Phase.DECODING, True), (Phase.DECODING, False)]
)
async def test_whoever_leaves_is_out_of_the_books(phase: Phase, handed: bool) -> None:
    async with running(BOTH, fluid(leaning=["b0"]), profile="toy", speedup=0.2) as one:
        if handed:
            loaded(one, "b1")
        record = await one.leave_in(intent(prompt(300), max_tokens=500, ignore_eos=True), phase)
        assert record.phase is Phase.CANCELLED
        if handed:
            unloaded(one, "b1")


async def test_a_prefill_that_fails_is_computed_where_it_is_decoded_and_booked_there() -> None:
    fails = {"faults": [{"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}}]}
    async with running(BOTH, fluid(leaning=["b0"]), scripts={"b0": fails}) as one:
        loaded(one, "b1")
        wanted = intent(prompt(300), max_tokens=12, ignore_eos=True)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.path, answer.record.path_reason) == ("local", "prefill_failed")
        unloaded(one, "b1")


def _prefilling(one: Fleet, wanted: Intent) -> bool:
    return one.watcher.path_of(wanted.request_id)[-1:] == [Phase.PREFILLING]


@pytest.mark.parametrize("victim", ["b0", "b1"])
async def test_the_death_of_either_worker_leaves_nothing_behind(victim: str) -> None:
    async with running(BOTH, fluid(leaning=["b0"]), profile="toy", speedup=0.2) as one:
        loaded(one, "b1")
        wanted = intent(prompt(300), max_tokens=40, ignore_eos=True)
        task = asyncio.create_task(one.outcome(wanted))
        await until(partial(_prefilling, one, wanted))
        await one.members.pop(victim).stop()
        answer, error = await task
        whole = expected(wanted.prompts[0], wanted.sampling)
        came = answer.tokens()
        assert came == whole[: len(came)]
        assert error is not None or came == whole
        unloaded(one, "b1")


async def test_a_refused_place_is_not_kept_in_the_books() -> None:
    """KV for one answer at a time: the others are asked for again and again."""
    settings = fluid()
    async with running((("b0", Role.BOTH),), settings, kv_blocks=8, profile="toy") as one:
        wanted = [intent(prompt(40, seed), max_tokens=40, ignore_eos=True) for seed in range(5)]
        answers = await asyncio.gather(*[one.ask(each) for each in wanted])
        assert [len(answer.tokens()) for answer in answers] == [40] * 5
        assert roles(one).ways == {WayTaken.TOGETHER: 5}


async def test_prompts_that_are_asked_for_together_again_and_again_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second prompt is not even asked for while the first is refused."""
    refusals, came, ask = [1, 2], [], Asking._ask

    async def asked(self: Asking, turn: Turn) -> ReservationHold | None:
        if not refusals:
            return await ask(self, turn)
        refusals.pop()
        turn.bid.asks += 1
        turn.worker.not_granted(turn.lease)
        return None

    async with running((("b0", Role.BOTH),), fluid()) as one:
        taken = roles(one).policy.taken

        def noted(*words: Any, arrives: bool) -> None:
            came.append(arrives)
            taken(*words, arrives=arrives)

        monkeypatch.setattr(Asking, "_ask", asked)
        monkeypatch.setattr(roles(one).policy, "taken", noted)
        answer = await one.ask(intent(prompt(40, 1), prompt(60, 2), max_tokens=6, ignore_eos=True))
        assert [len(answer.tokens(choice)) for choice in range(2)] == [6, 6]
        assert came == [True] * 2 + [False] * 4


async def test_the_law_of_steps_is_learnt_from_the_workers() -> None:
    async with running((("b0", Role.BOTH),), fluid(), profile="toy") as one:
        law = roles(one).policy.law
        weights_s, token_s = law.weights_s, law.token_s
        await one.ask(intent(prompt(40), max_tokens=200, ignore_eos=True))
        await until(lambda: law.weights_s < weights_s)
        await asyncio.gather(*[one.ask(intent(prompt(900, seed), max_tokens=9)) for seed in range(3)])
        await until(lambda: law.token_s != token_s)
        totals = one.members["b0"].engine.stats().totals
        assert law.weights_s == pytest.approx(totals.decode_s / totals.decode_steps, rel=0.3)


async def test_kv_that_does_not_arrive_is_computed_again_and_booked_again() -> None:
    rule = {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "where": {"leg": "pull"}, "times": 1}
    async with running(BOTH, fluid(leaning=["b0"]), scripts={"b1": {"faults": [rule]}}) as one:
        loaded(one, "b1")
        wanted = intent(prompt(300), max_tokens=12, ignore_eos=True)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
        assert (answer.record.retries, answer.record.handoffs) == (1, 1)
        unloaded(one, "b1")


async def test_tickets_that_are_too_old_leave_no_trace() -> None:
    """Every lease is shorter than the margin: the prompt is computed three times, and given up."""
    settings = config(
        routing={"fluid": {"ttft_ms": 1000, "tpot_ms": 50, "leaning": ["b0"]}, "lease_margin_s": 1000.0},
    )
    async with running(BOTH, settings) as one:
        loaded(one, "b1")
        _, error = await one.outcome(intent(prompt(300), max_tokens=12, ignore_eos=True))
        assert error is not None
        assert (error.reason, one.watcher.expired) == (Reason.HANDOFF_FAILED, 3)
        unloaded(one, "b1")


async def test_whoever_leaves_the_queue_was_never_in_the_books() -> None:
    async with running((("b0", Role.BOTH),), fluid(), kv_blocks=8, profile="toy") as one:
        first = intent(prompt(40), max_tokens=80, ignore_eos=True)
        answering = asyncio.create_task(one.ask(first))
        await one.begun(first)
        record = await one.leave_in(intent(prompt(41), max_tokens=80, ignore_eos=True), Phase.QUEUED)
        assert record.phase is Phase.CANCELLED
        assert len((await answering).tokens()) == 80
        assert roles(one).ways == {WayTaken.TOGETHER: 1}


async def test_an_answer_that_was_placed_where_prompts_are_computed_goes_on_when_another_has_room() -> None:
    """No other had KV for it. It does not go while a prompt waits for that, and it is the same answer."""
    async with running(BOTH, fluid(leaning=["b0"]), profile="toy", kv_blocks=40) as one:
        slow = True

        async def pace() -> None:
            if slow:
                await asyncio.sleep(0.01)

        for member in one.members.values():
            before_each_step(member.engine.injector, pace)
        wanted = [intent(prompt(300, seed), max_tokens=200, ignore_eos=True) for seed in range(2)]
        first, guest = [asyncio.create_task(one.ask(each)) for each in wanted[:1]], wanted[1]
        await one.begun(wanted[0])
        last = asyncio.create_task(one.ask(guest))
        await one.begun(guest)
        assert [one.accounts[each.request_id].decode_worker for each in wanted] == ["b1", "b0"]
        first[0].cancel()
        await asyncio.gather(*first, return_exceptions=True)
        await until(lambda: one.lifecycle.overruns.moves)
        slow = False
        answer = await last
        assert answer.tokens() == expected(guest.prompts[0], guest.sampling)
        assert (answer.record.decode_worker, answer.record.moves) == ("b1", 1)
        assert one.lifecycle.overruns.moves == {(Why.ROOM, Outcome.MOVED): 1}
