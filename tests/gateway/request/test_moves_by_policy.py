"""Who moves when nobody is told to: by balance (R-26) and when more KV grows than was promised (R-08), over real workers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.policy.admission import Budget, Candidate, Decision, ErrorBudget, KvBook, Verdict
from gateway.request.intent import Intent
from gateway.request.moving import Outcome, Why
from proto.reservation import ReleaseReservation, Reservation, ReserveRequest
from proto.work import FinishReason
from proto.worker import Role
from tests.gateway.fleet import Fleet, config, expected, fleet, intent, prompt, until

DUO = (("d0", Role.DECODE), ("d1", Role.DECODE))
TOKENS = 400


def settings(policy: dict[str, Any], **more: Any) -> Any:
    health = {"watch_interval_s": 0.02}
    return config(policy=policy, routing={"on_no_prefill": "local"}, health=health, **more)


def shares(one: Fleet) -> list[float]:
    """Of each worker's KV, in use or promised."""
    states = [one.cluster.worker(name).state for name, _ in DUO]  # type: ignore[union-attr]  # None would fail the test as well
    return [max(state.blocks_used, state.blocks_reserved) / state.blocks_total for state in states if state]


async def all_on_the_first(one: Fleet, wanted: list[Intent]) -> list["asyncio.Task[Any]"]:
    """The second worker takes nothing until all of them run."""
    await one.cluster.drain("d1")
    tasks = [asyncio.create_task(one.ask(each)) for each in wanted]
    await one.begun(*wanted)
    assert one.members["d1"].idle
    await one.cluster.drain("d1", resume=True)
    return tasks


@pytest.mark.slow
async def test_r26_a_full_worker_gives_answers_to_an_empty_one() -> None:
    """One of them is far longer than the others. The spread narrows while all run, moves are counted, and no answer changes."""
    policy = {"rule": "declared", "balance": {"above": 0.2, "spread": 0.1}}
    async with fleet(DUO, profile="toy", speedup=0.3, kv_blocks=160, settings=settings(policy)) as one:
        lengths = (3 * TOKENS, TOKENS, TOKENS)
        wanted = [intent(prompt(40, seed), max_tokens=most, ignore_eos=True) for seed, most in enumerate(lengths)]
        tasks = await all_on_the_first(one, wanted)
        await until(lambda: one.lifecycle.overruns.moves)
        assert not any(task.done() for task in tasks)
        await until(lambda: max(shares(one)) - min(shares(one)) < 0.5)
        answers = await asyncio.gather(*tasks)
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert answer.record.moves <= 1
        moved = [answer for answer in answers if answer.record.moves]
        assert {answer.record.decode_worker for answer in moved} == {"d1"}
        assert one.lifecycle.overruns.moves == {(Why.BALANCE, Outcome.MOVED): len(moved)}
        await one.settled(10.0)


@pytest.mark.slow
async def test_a_full_worker_whose_answers_cannot_move_does_not_keep_the_next_one_from_giving_some() -> None:
    """Answers with seeds stay where they are, on the fullest of three."""
    policy = {"rule": "declared", "balance": {"above": 0.1, "spread": 0.1}}
    trio = (*DUO, ("d2", Role.DECODE))
    async with fleet(trio, profile="toy", speedup=0.3, kv_blocks=160, settings=settings(policy)) as one:

        async def all_on(name: str, wanted: list[Intent]) -> list["asyncio.Task[Any]"]:
            for other, _ in trio:
                await one.cluster.drain(other, resume=other == name)
            tasks = [asyncio.create_task(one.ask(each)) for each in wanted]
            await one.begun(*wanted)
            return tasks

        most = 3 * TOKENS
        seeded = [intent(prompt(40, n), max_tokens=most, ignore_eos=True, seed=n, temperature=1.0) for n in range(4)]
        free = [intent(prompt(40, n), max_tokens=most, ignore_eos=True) for n in range(10, 12)]
        tasks = [*await all_on("d0", seeded), *await all_on("d1", free)]
        for name, _ in trio:
            await one.cluster.drain(name, resume=True)
        await until(lambda: one.lifecycle.overruns.moves)
        answers = await asyncio.gather(*tasks)
        moved = [answer for answer in answers if answer.record.moves]
        assert moved
        assert all(answer in answers[len(seeded) :] for answer in moved)
        assert "d1" not in {answer.record.decode_worker for answer in moved}  # nobody goes back
        await one.settled(10.0)


async def test_without_such_a_policy_everything_stays_where_it_is() -> None:
    async with fleet(
        DUO,
        profile="toy",
        kv_blocks=128,
        settings=settings({"rule": "declared", "classes": {"default": {"on_overrun": []}}}),
    ) as one:
        wanted = [intent(prompt(40, seed), max_tokens=TOKENS, ignore_eos=True) for seed in range(3)]
        for answer in await asyncio.gather(*await all_on_the_first(one, wanted)):
            assert (answer.record.decode_worker, answer.record.moves) == ("d0", 0)
        assert not one.lifecycle.overruns.moves
        assert not one.cluster.snapshot().pairs
        await one.settled()


@pytest.mark.slow
async def test_r08_answers_that_outgrow_their_worker_go_on_at_another() -> None:
    """Growth that was believed to be 16 tokens and is 88, on KV for two such answers; the other worker is empty."""
    policy = {"rule": "declared", "classes": {"default": {"on_overrun": ["move"]}}}
    chosen = settings(policy, admission={"default_output_tokens": 16})
    async with fleet(DUO, profile="toy", speedup=0.1, kv_blocks=16, max_model_len=128, settings=chosen) as one:
        wanted = [intent(prompt(40, seed), declared=False, max_tokens=10_000, ignore_eos=True) for seed in range(4)]
        tasks = await all_on_the_first(one, wanted)
        answers = await asyncio.gather(*tasks)
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], replace(each.sampling, max_tokens=88))
            assert answer.finish() is FinishReason.LENGTH
        moves = one.lifecycle.overruns.moves
        assert moves[Why.OVERRUN, Outcome.MOVED] + moves[Why.OVERRUN, Outcome.RECOMPUTED] >= 1
        assert sum(answer.record.moves for answer in answers) >= 1
        await one.settled(10.0)


class Nobody:
    """A worker that takes no newcomer, though its blocks are free."""

    name = "nobody"

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        return replace(ErrorBudget(Budget()).decide(candidate, book), verdict=Verdict.WAIT)


def takes_nobody(one: Fleet, name: str) -> None:
    expected = one.members[name].worker.decode.ledger.expected
    expected.rule = Nobody()
    expected.admission = replace(expected.admission, rule=expected.rule)


@pytest.mark.slow
async def test_r08_in_an_emergency_a_worker_takes_what_it_would_refuse_a_newcomer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers that are believed to have 16 tokens, and have 88, on KV for four of them. Nothing is computed twice."""
    policy = {"classes": {"default": {"on_overrun": ["move"]}}, "lengths": {"prior": [[0.0, 8], [1.0, 16]]}}
    engine: dict[str, Any] = {"profile": "toy", "speedup": 0.1, "max_model_len": 128}
    async with fleet(DUO[:1], kv_blocks=32, settings=settings(policy), **engine) as one:
        await one.add("d1", Role.DECODE, kv_blocks=80, **engine)
        takes_nobody(one, "d1")
        await one.ready()
        client = one.cluster.worker("d1").connection.client  # type: ignore[union-attr]  # None would fail the test as well
        call, asked = client.reserve, list[tuple[bool, bool, bool]]()

        async def as_a_newcomer_first(request: ReserveRequest, *rest: Any) -> Any:
            plain = replace(request, request_id=f"{request.request_id}-plain", emergency=False)
            first = await call(plain, *rest)
            if isinstance(first, Reservation):
                await client.release_reservation(ReleaseReservation(first.reservation_id), *rest)
            reply = await call(request, *rest)
            asked.append((request.emergency, isinstance(first, Reservation), isinstance(reply, Reservation)))
            return reply

        monkeypatch.setattr(client, "reserve", as_a_newcomer_first)
        wanted = [intent(prompt(40, seed), declared=False, max_tokens=10_000, ignore_eos=True) for seed in range(6)]
        answers = await asyncio.gather(*[one.ask(each) for each in wanted])
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], replace(each.sampling, max_tokens=88))
        moves = one.lifecycle.overruns.moves
        assert moves[Why.OVERRUN, Outcome.MOVED] >= 2
        assert {outcome for _, outcome in moves} <= {Outcome.MOVED, Outcome.REFUSED, Outcome.KEPT}
        assert (True, False, True) in asked  # an emergency that would have been refused
        assert not [reply for emergency, _, reply in asked if reply and not emergency]
        for member in one.members.values():
            stats = member.engine.stats()
            assert (stats.preemptions, stats.recomputed_tokens) == (0, 0)
        await one.settled(10.0)


@pytest.mark.slow
async def test_many_that_move_at_once_are_all_right() -> None:
    policy = {"balance": {"above": 0.01, "spread": 0.01}}
    async with fleet(DUO, profile="toy", settings=settings(policy)) as one:
        wanted = [intent(prompt(20 + seed, seed), max_tokens=TOKENS, ignore_eos=True) for seed in range(12)]
        answers = await asyncio.gather(*await all_on_the_first(one, wanted))
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
        await one.settled(10.0)


async def test_a_move_is_told_to_whoever_asks_for_an_explanation() -> None:
    policy = {"rule": "declared", "balance": {"above": 0.3, "spread": 0.1}}
    async with fleet(DUO, profile="toy", speedup=0.5, kv_blocks=128, settings=settings(policy)) as one:
        wanted = [intent(prompt(40, seed), max_tokens=TOKENS, ignore_eos=True) for seed in range(3)]
        answers = await asyncio.gather(*await all_on_the_first(one, wanted))
        moved = next(answer.record.request_id for answer in answers if answer.record.moves)
        (decision,) = one.lifecycle.controller.decisions.of(moved)
        looks = [look for look in decision.looks if look.what == "move"]
        assert [look.worker_id for look in looks] == ["d1"]
        assert "balance" in looks[0].why
        assert {"move_bytes", "move_s", "recompute_s", "full_share"} <= set(looks[0].numbers)
