"""Hand-off after K tokens: the prefill worker gives the first ones, the decode worker the rest (over real workers)."""

import asyncio
from typing import Any

import pytest

from gateway.config import GatewayConfig
from gateway.request.errors import Reason
from gateway.request.phase import Phase
from proto.work import FinishReason
from proto.worker import Role
from tests.gateway.fleet import FOUR, PAIR, VOCABULARY, Fleet, config, expected, fleet, intent, prompt, sampling, until

TRIO = (*PAIR, ("p1", Role.PREFILL))


def after(tokens: int, **more: Any) -> GatewayConfig:
    return config(routing={"handoff_after_tokens": tokens}, **more)


def given(one: Fleet, name: str) -> int:
    """Tokens that a worker has generated."""
    return one.members[name].engine.stats().generated_tokens


@pytest.mark.parametrize("tokens", [2, 8])
async def test_the_answer_is_that_of_one_engine_wherever_it_is_cut(tokens: int) -> None:
    """Lengths around the block boundary of 16, which a ticket must not end on."""
    async with fleet(PAIR, settings=after(tokens)) as one:
        for length in (1, 9, 15, 16, 17, 24, 40):
            before, rest = given(one, "p0"), given(one, "d0")
            wanted = intent(prompt(length), max_tokens=30, ignore_eos=True, salt=str(length))
            answer = await one.ask(wanted)
            assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
            assert answer.finish() is FinishReason.LENGTH
            assert (answer.record.completion_tokens, answer.record.handoffs, answer.record.retries) == (30, 1, 0)
            assert abs(given(one, "p0") - before - tokens) <= 1
            assert given(one, "p0") - before + given(one, "d0") - rest == 30
            assert one.watcher.handoffs[-1].kv_bytes > 0
        await one.settled()


async def test_tokens_come_as_the_prefill_worker_makes_them() -> None:
    async with fleet(PAIR, profile="toy", settings=after(8)) as one:
        answer = await one.ask(intent(prompt(40), max_tokens=20, ignore_eos=True))
        assert len(answer.pieces) > 12
        assert answer.first().tokens == answer.tokens()[:1]
        await one.settled()


async def test_an_answer_within_the_first_tokens_is_not_handed_off() -> None:
    async with fleet(PAIR, settings=after(9)) as one:
        for max_tokens in (1, 5, 8, 9):
            wanted = intent(prompt(40), max_tokens=max_tokens, ignore_eos=True)
            answer = await one.ask(wanted)
            assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)
            assert answer.finish() is FinishReason.LENGTH
            assert (answer.record.handoffs, given(one, "d0")) == (0, 0)
        await one.settled()


async def test_a_stop_token_ends_the_answer_on_either_worker() -> None:
    async with fleet(PAIR, settings=after(8)) as one:
        plain = expected(prompt(40), sampling(30, ignore_eos=True))
        for at in (0, 3, 7, 8, 12):
            wanted = intent(prompt(40), max_tokens=30, ignore_eos=True, stop_token_ids=(plain[at],))
            answer = await one.ask(wanted)
            assert answer.tokens() == expected(prompt(40), wanted.sampling)
            assert (answer.finish(), answer.record.retries) == (FinishReason.STOP, 0)
        await one.settled()


async def test_stop_tokens_wait_for_the_minimum() -> None:
    async with fleet(PAIR, settings=after(8)) as one:
        wanted = intent(prompt(40), max_tokens=30, min_tokens=20, stop_token_ids=tuple(VOCABULARY.eos))
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(prompt(40), wanted.sampling)
        await one.settled()


async def test_what_cannot_be_carried_is_handed_off_after_its_prompt() -> None:
    states: tuple[dict[str, Any], ...] = (
        {"seed": 3, "temperature": 1.0},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
    )
    async with fleet(PAIR, settings=after(8)) as one:
        for more in states:
            before = given(one, "p0")
            wanted = intent(prompt(40), max_tokens=20, ignore_eos=True, **more)
            answer = await one.ask(wanted)
            assert answer.tokens() == expected(prompt(40), wanted.sampling)
            assert given(one, "p0") == before + 1
        await one.settled()


async def test_logprobs_and_prompt_logprobs_come_once_and_in_order() -> None:
    async with fleet(PAIR, settings=after(5)) as one:
        wanted = intent(prompt(40), max_tokens=12, ignore_eos=True, logprobs=2, prompt_logprobs=1)
        answer = await one.ask(wanted)
        logprobs = [entry for piece in answer.pieces for entry in piece.logprobs]
        assert [entry.token_ids[0] for entry in logprobs] == list(answer.tokens())
        assert [len(piece.prompt_logprobs) for piece in answer.pieces if piece.prompt_logprobs] == [40]
        await one.settled()


async def test_a_prefill_worker_that_fails_between_two_tokens_is_replaced_and_nothing_is_said_twice() -> None:
    fails = {"faults": [{"kind": "fail", "where": {"leg": "prefill"}, "after_tokens": 3}]}
    async with fleet(TRIO, scripts={"p0": fails}, settings=after(8)) as one:
        wanted = intent(prompt(40), max_tokens=20, ignore_eos=True)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(prompt(40), wanted.sampling)
        assert answer.record.retries == 1
        assert answer.record.completion_tokens == 20
        assert answer.record.prefill_worker == "p1"
        await one.settled(30.0)


async def test_a_client_that_leaves_between_two_tokens_leaves_nothing() -> None:
    async with fleet(PAIR, profile="toy", settings=after(200)) as one:
        wanted = intent(prompt(40), max_tokens=300, ignore_eos=True)
        task = asyncio.create_task(one.ask(wanted))
        await until(lambda: wanted.request_id in one.accounts)
        record = one.accounts[wanted.request_id]
        await until(lambda: record.completion_tokens > 3, 30.0)
        assert one.watcher.path_of(wanted.request_id)[-1] is Phase.PREFILLING
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.settled(30.0)
        assert record.phase is Phase.CANCELLED


async def test_a_stop_string_within_the_first_tokens_ends_the_leg() -> None:
    async with fleet(PAIR, profile="toy", settings=after(200)) as one:
        wanted = intent(prompt(40), max_tokens=300, ignore_eos=True)
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for _ in stream:
                await stream.stop_choice(0)
        await one.settled(30.0)
        assert record.phase is Phase.DONE
        assert given(one, "p0") < 200


async def test_a_silent_prefill_worker_is_a_fault_with_a_deadline() -> None:
    hangs = {"faults": [{"kind": "hang", "phase": "decode", "where": {"leg": "prefill"}, "after_tokens": 3}]}
    settings = config(routing={"handoff_after_tokens": 8, "on_prefill_failure": "fail"}, deadlines={"idle_s": 0.3})
    async with fleet(PAIR, scripts={"p0": hangs}, settings=settings) as one:
        answer, error = await one.outcome(intent(prompt(40), max_tokens=20, ignore_eos=True))
        assert error is not None
        assert error.reason is Reason.PREFILL_TIMEOUT
        assert 1 <= len(answer.tokens()) <= 3  # a machine that stalls may be silent before that
        await one.settled(30.0)


async def test_many_at_once_are_all_right() -> None:
    async with fleet(FOUR, settings=after(6)) as one:
        wanted = [intent(prompt(20 + seed, seed), max_tokens=24, ignore_eos=True) for seed in range(12)]
        for each, answer in zip(wanted, await asyncio.gather(*[one.ask(each) for each in wanted]), strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert answer.record.handoffs == 1
        await one.settled(30.0)
