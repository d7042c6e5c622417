"""Fluid roles over real workers: their engines keep the policy's steps, and take work in its order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import tandem.worker.worker as tandem_worker
from gateway.config import GatewayConfig
from gateway.policy.roles import Knobs
from gateway.request import step_limits
from gateway.request.intent import Intent
from proto import services
from proto.method import Bound
from proto.precedence import Precedence
from proto.work import Work
from proto.worker import Role
from tandem.worker.step_limits import MAX_LEASE_S
from tests.gateway.fleet import Answer, Fleet, expected, fleet, intent, prompt, until
from tests.gateway.request.test_fluid import BOTH, fluid, loaded, roles, running, unloaded

ONE = (("b0", Role.BOTH),)
ANSWERS = 8
#: Tokens of a step of the engine when nobody bounds it.
OWN = 2048


def long(seed: int = 1, tokens: int = 6000) -> Intent:
    return intent(prompt(tokens, seed), max_tokens=4, ignore_eos=True)


def spy(one: Fleet, worker_id: str) -> list[Work]:
    """Everything that the worker's engine is given from now on."""
    engine, seen = one.members[worker_id].engine, list[Work]()
    submit = engine.submit

    def submitted(work: Work, **more: Any) -> None:
        seen.append(work)
        submit(work, **more)

    engine.submit = submitted  # type: ignore[method-assign]  # replaced for the test
    return seen


@asynccontextmanager
async def answering(one: Fleet) -> AsyncIterator[None]:
    """They run for as long as that takes."""
    wanted = [intent(prompt(40, seed), max_tokens=6000, ignore_eos=True) for seed in range(10, 10 + ANSWERS)]
    asked = [asyncio.create_task(one.ask(each)) for each in wanted]
    await one.begun(*wanted)
    yield
    for task in asked:
        assert not task.done()
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


def right(wanted: list[Intent], answers: list[Answer]) -> None:
    for each, answer in zip(wanted, answers, strict=True):
        assert answer.tokens() == expected(each.prompts[0], each.sampling)


async def chunks(one: Fleet, step_tokens: int) -> float:
    """Tokens of a step, while a long prompt is computed beside answers by an engine that keeps steps of so many tokens."""
    engine = one.members["b0"].engine
    await until(lambda: roles(one).policy.knobs.bounds_chunks is (step_tokens < OWN))
    async with answering(one):
        await until(lambda: engine._scheduler.limits.max_batched_tokens == step_tokens)
        before = engine.stats().totals
        wanted = long()
        right([wanted], [await one.ask(wanted)])
        after = engine.stats().totals.since(before)
    return after.chunk_tokens / after.chunk_steps


def tight() -> GatewayConfig:
    return fluid(tpot_ms=8)


async def test_a_prompt_beside_answers_is_computed_in_steps_that_they_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of this engine is short enough for the answers, so the least of prompts is in each, on however slow a machine."""
    monkeypatch.setattr(step_limits, "LEASE_S", MAX_LEASE_S)
    least = Knobs().smallest_chunk_tokens
    async with running(ONE, fluid(tpot_ms=1), profile="toy") as one:
        assert await chunks(one, ANSWERS + least) <= least
        assert 0 < roles(one).row.step_tokens["b0"] <= OWN


async def test_a_worker_of_before_keeps_its_steps_and_serves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    every = tandem_worker.Worker.methods

    def older(worker: tandem_worker.Worker) -> list[Bound]:
        return [bound for bound in every(worker) if bound.method.path != services.LIMIT_STEP.path]

    monkeypatch.setattr(tandem_worker.Worker, "methods", older)
    async with running(ONE, tight(), profile="toy") as one:
        await until(lambda: roles(one).limits._listeners["b0"].most == 0)
        assert await chunks(one, OWN) > 1000
        assert roles(one).row.step_tokens == {}


async def test_an_engine_is_told_before_the_prompt_gets_there() -> None:
    async with running(ONE, tight(), profile="toy") as one:
        await until(lambda: roles(one).policy.knobs.bounds_chunks)
        async with answering(one):
            engine, told = one.members["b0"].engine, list[int]()
            at_once = engine.limit_step

            def limit_step(tokens: int, chunk_tokens: int) -> None:
                told.append(tokens)
                at_once(tokens, chunk_tokens)

            engine.limit_step = limit_step  # type: ignore[method-assign]  # replaced for the test
            works = spy(one, "b0")
            asked = asyncio.create_task(one.ask(long()))
            await until(lambda: bool(works))
            assert engine._scheduler.limits.max_batched_tokens < 2048
            await asked
            assert all(8 < tokens <= 2048 for tokens in told)


async def test_an_engine_has_its_steps_back_when_its_gateway_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_limits, "LEASE_S", 0.3)
    async with running(ONE, tight(), profile="toy") as one:
        engine = one.members["b0"].engine
        async with answering(one):
            await one.ask(long())
        await until(lambda: engine._scheduler.limits.max_batched_tokens == 2048)
        await until(lambda: not one.members["b0"].worker.step_limits._limits)


async def test_an_answer_that_was_handed_over_goes_before_prompts() -> None:
    async with running(BOTH, fluid(leaning=["b0"])) as one:
        computes, decodes = spy(one, "b0"), spy(one, "b1")
        loaded(one, "b1")
        await one.ask(intent(prompt(40), max_tokens=30, ignore_eos=True))
        unloaded(one, "b1")
        assert [work.precedence for work in computes] == [Precedence.ORDINARY]
        assert [work.precedence for work in decodes] == [Precedence.BEGUN]


@pytest.mark.parametrize("priority", [-(2**31), 0, 2**31 - 1])
async def test_a_prompt_that_will_be_late_goes_behind_whatever_its_client_says(priority: int) -> None:
    async with running(ONE, fluid()) as one:
        await until(lambda: roles(one).policy.knobs.bounds_chunks)
        works = spy(one, "b0")
        wanted = [replace(intent(prompt(40, seed), ignore_eos=True), priority=priority) for seed in (1, 2)]
        await one.ask(wanted[0])
        loaded(one, "b0")
        await one.ask(wanted[1])
        unloaded(one, "b0")
        assert [work.precedence for work in works] == [Precedence.ORDINARY, Precedence.LATE]
        assert {work.priority for work in works} == {priority}


async def test_where_roles_are_fixed_nobody_is_told_and_nobody_goes_first() -> None:
    async with fleet((("p0", Role.PREFILL), ("d0", Role.DECODE))) as one:
        works = spy(one, "p0"), spy(one, "d0")
        await one.ask(intent(prompt(40), max_tokens=30, ignore_eos=True))
        assert [[work.precedence for work in each] for each in works] == [[Precedence.ORDINARY]] * 2
        assert not any(member.worker.step_limits._limits for member in one.members.values())
