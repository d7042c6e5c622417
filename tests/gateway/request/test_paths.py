"""The ways a request can take, over real gRPC workers: handed off, local, colocated."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.http.timings import breakdown
from gateway.request.legs import answer_limit
from gateway.request.phase import Phase
from loadgen.client.stages import stages_of
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.work import FinishReason
from proto.worker import Role
from tests.examples import first
from tests.gateway.fleet import (
    BLOCK,
    FOUR,
    PAIR,
    SOLO,
    VOCABULARY,
    Fleet,
    config,
    expected,
    fleet,
    intent,
    prompt,
    until,
)

Q, R, P, H, D, DONE = (
    Phase.QUEUED,
    Phase.RESERVED,
    Phase.PREFILLING,
    Phase.HANDED_OFF,
    Phase.DECODING,
    Phase.DONE,
)


async def test_b09_a_prompt_is_handed_off_and_its_kv_moves() -> None:
    async with fleet(PAIR) as one:
        wanted = intent(prompt(40), max_tokens=20)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(prompt(40), wanted.sampling)
        assert answer.record.path == "remote"
        assert answer.record.handoffs == 1
        assert answer.record.kv_bytes > 0
        assert one.watcher.path_of(wanted.request_id) == [Q, R, P, H, D, DONE]
        await until(lambda: one.cluster.snapshot().pairs[0].bytes > 0)
        assert one.members["p0"].engine.stats().generated_tokens == 1
        await one.settled()


async def test_a_worker_of_both_roles_serves_alone() -> None:
    async with fleet(SOLO) as one:
        wanted = intent(prompt(40), max_tokens=20)
        answer = await one.ask(wanted)
        assert answer.tokens() == expected(prompt(40), wanted.sampling)
        assert (answer.record.path, answer.record.handoffs) == ("colocated", 0)
        assert one.watcher.path_of(wanted.request_id) == [Q, R, D, DONE]
        await one.settled()


@pytest.mark.parametrize("layout", [SOLO, PAIR], ids=["colocated", "handed off"])
async def test_the_prompt_has_its_time_whichever_worker_computed_it(layout: Any) -> None:
    """Five stages that add up to the total (R-55); the answer's own steps are not in the prefill."""
    async with fleet(layout) as one:
        record = (await one.ask(intent(prompt(400), max_tokens=20))).record
        assert record.first_token_s is not None
        assert record.ended_s is not None
        assert 0 < record.prefill_compute_s < record.first_token_s - record.started_s
        stages = stages_of(breakdown(record, record.ended_s, names=False))
        assert stages["prefill"] > 0
        assert stages["decode"] > 0
        assert sum(stages.values()) == pytest.approx(record.ended_s - record.started_s, rel=0.01)


async def test_short_and_cached_prompts_stay_on_the_decode_worker() -> None:
    async with fleet(PAIR, settings=config(routing={"local_prefill_below_tokens": 16})) as one:
        short = await one.ask(intent(prompt(15)))
        first = await one.ask(intent(prompt(40), salt="a"))
        again = await one.ask(intent(prompt(40), salt="a"))
        other = await one.ask(intent(prompt(40), salt="b"))
        assert (short.record.path, short.record.path_reason) == ("local", "short")
        assert first.record.path == "remote"
        assert (again.record.path, again.record.path_reason) == ("local", "cached")
        assert again.record.cached_tokens == 32
        assert other.record.path == "remote"  # another tenant's salt: nothing is cached for it
        for answer in (first, again, other):
            assert answer.tokens() == expected(prompt(40), intent().sampling)
        await one.settled()


SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "unseeded": {"temperature": 0.8},
    "seeded": {"temperature": 0.8, "seed": 7},
    "greedy with a seed": {"seed": 7},
    "presence penalty": {"presence_penalty": 0.5},
    "frequency penalty": {"frequency_penalty": 0.5},
    "repetition penalty": {"repetition_penalty": 1.2},
    "min tokens": {"min_tokens": 6},
    "min tokens above one, EOS biased": {"min_tokens": 3, "logit_bias": ((256, 60.0),)},
    "ignore EOS": {"ignore_eos": True},
    "stop token": {"stop_token_ids": (101, 116, 97)},
    "min tokens and stop token": {"min_tokens": 4, "stop_token_ids": tuple(range(97, 110))},
    "forced token": {"logit_bias": ((98, 60.0),)},
    "EOS at once": {"logit_bias": ((256, 60.0),)},
    "EOS at once, ignored": {"logit_bias": ((256, 60.0),), "ignore_eos": True},
    "logprobs": {"logprobs": 2},
}


#: On and around block boundaries.
PROMPTS = [
    pytest.param((1, 15, 16, 17, 100), id="few"),
    pytest.param((2, 31, 32, 33, 64, 65), id="more", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("lengths", PROMPTS)
@pytest.mark.parametrize("name", first(8, SAMPLINGS))
async def test_a_handed_off_answer_equals_an_uninterrupted_one(name: str, lengths: tuple[int, ...]) -> None:
    """Every sampling, prompt lengths on and around block boundaries, answers of one token to many."""
    more = SAMPLINGS[name]

    async def compare(one: Fleet, solo: Fleet, length: int, limit: int) -> None:
        remote = await one.ask(intent(prompt(length, limit), max_tokens=limit, **more))
        alone = await solo.ask(intent(prompt(length, limit), max_tokens=limit, **more))
        wanted = intent(max_tokens=limit, **more).sampling
        assert alone.tokens() == expected(prompt(length, limit), wanted), (length, limit)
        assert remote.tokens() == alone.tokens(), (length, limit)
        assert remote.finish() == alone.finish(), (length, limit)
        assert remote.record.path == "remote"
        assert remote.record.completion_tokens == len(remote.tokens())
        if "logprobs" in more:
            entries = [entry for piece in remote.pieces for entry in piece.logprobs]
            assert [entry.token_ids[0] for entry in entries] == list(remote.tokens())
            assert entries == [entry for piece in alone.pieces for entry in piece.logprobs]

    async with fleet(PAIR) as one, fleet(SOLO) as solo:
        async with asyncio.TaskGroup() as tasks:
            for length in lengths:
                for limit in (1, 2, 5, 30):
                    if more.get("min_tokens", 0) <= limit:
                        tasks.create_task(compare(one, solo, length, limit))
        assert one.watcher.retries == []
        await one.settled()
        await solo.settled()


async def test_b04_an_answer_that_ends_with_the_carried_token_needs_no_decode_leg() -> None:
    async with fleet(PAIR) as one:
        ended = await one.ask(intent(prompt(40), max_tokens=8, logit_bias=((256, 60.0),)))
        single = await one.ask(intent(prompt(41), max_tokens=1))
        assert (ended.tokens(), ended.finish()) == ((256,), FinishReason.STOP)
        assert single.finish() is FinishReason.LENGTH
        assert len(single.tokens()) == 1
        assert one.members["d0"].engine.stats().generated_tokens == 0
        await one.settled()
        assert one.members["p0"].engine.stats().tickets_held == 0


async def test_b19_structured_output_sees_its_first_token_once() -> None:
    async with fleet(PAIR) as one, fleet(SOLO) as solo:
        schema = StructuredOutput(
            StructuredKind.JSON_SCHEMA,
            '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
        )
        remote = await one.ask(intent(prompt(40), max_tokens=40, structured=schema))
        alone = await solo.ask(intent(prompt(40), max_tokens=40, structured=schema))
        assert remote.tokens() == alone.tokens()
        assert remote.record.path == "remote"


@pytest.mark.parametrize("roles", [PAIR, SOLO], ids=["disaggregated", "colocated"])
async def test_b06_n_answers_come_from_one_prefill(roles: tuple[tuple[str, Role], ...]) -> None:
    async with fleet(roles) as one:
        wanted = intent(prompt(50), n=3, max_tokens=12, temperature=1.0, seed=5)
        answer = await one.ask(wanted)
        for choice in range(3):
            seeded = replace(wanted.sampling, seed=5 + choice)
            assert answer.tokens(choice) == expected(prompt(50), seeded)
        assert len({answer.tokens(choice) for choice in range(3)}) == 3
        prefilled = sum(member.engine.stats().prompt_tokens for member in one.members.values())
        cached = sum(member.engine.stats().cached_prompt_tokens for member in one.members.values())
        assert len(one.watcher.handoffs) == (1 if roles is PAIR else 0)
        assert cached >= 2 * 48 or prefilled <= 50 + 2 * 50
        assert all(answer.first(choice).cached_tokens == 0 for choice in range(3))  # B-11: by the leg that computed it
        await one.settled()


@pytest.mark.parametrize("roles", [PAIR, FOUR, SOLO], ids=["pair", "four", "solo"])
async def test_b05_a_list_of_prompts_is_one_handoff_each(roles: tuple[tuple[str, Role], ...]) -> None:
    async with fleet(roles) as one:
        prompts = tuple(prompt(20 + 9 * index, index) for index in range(5))
        wanted = intent(*prompts, n=2, max_tokens=9)
        answer = await one.ask(wanted)
        for index, tokens in enumerate(prompts):
            for extra in range(2):
                assert answer.tokens(2 * index + extra) == expected(tokens, wanted.sampling)
        assert answer.record.handoffs == (0 if roles is SOLO else 5)
        assert answer.record.completion_tokens == sum(len(answer.tokens(choice)) for choice in range(10))
        assert answer.record.phase is DONE
        await one.settled()


@pytest.mark.parametrize("length", [40, 48], ids=["carry", "replay"])
async def test_b11_cached_tokens_are_those_of_the_prefill_side(length: int) -> None:
    async with fleet(PAIR) as one:
        cold = await one.ask(intent(prompt(length)))
        warm = await one.ask(intent(prompt(length)))
        assert cold.record.cached_tokens == 0
        assert warm.record.cached_tokens == 32  # full blocks, never the whole prompt
        assert warm.first().cached_tokens == 32


@pytest.mark.parametrize("length", [40, 48], ids=["carry", "replay"])
@pytest.mark.parametrize("n", [1, 2])
async def test_b07_prompt_logprobs_come_from_the_prefill_leg(length: int, n: int) -> None:
    async with fleet(PAIR) as one, fleet(SOLO) as solo:
        wanted: dict[str, Any] = {"prompt_logprobs": 1, "logprobs": 1, "n": n}
        remote = await one.ask(intent(prompt(length), **wanted))
        alone = await solo.ask(intent(prompt(length), **wanted))
        for choice in range(n):
            assert len(remote.first(choice).prompt_logprobs) == length
            assert remote.first(choice).prompt_logprobs == alone.first(choice).prompt_logprobs


async def test_b16_the_first_piece_arrives_long_before_the_last() -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(40), max_tokens=100, ignore_eos=True)
        record = one.record(wanted)
        batches: list[int] = []
        async with one.lifecycle.open(wanted, record) as stream:
            async for batch in stream:
                batches.append(sum(len(piece.tokens) for piece in batch))
                if len(batches) == 2:
                    assert one.members["d0"].engine.stats().running == 1
        assert sum(batches) == 100
        assert len(batches) > 20


async def test_b01_b02_the_prefill_leg_computes_one_token_and_decode_the_rest() -> None:
    async with fleet(PAIR) as one:
        answer = await one.ask(intent(prompt(40), max_tokens=200, min_tokens=150))
        assert len(answer.tokens()) >= 150
        assert one.members["p0"].engine.stats().generated_tokens == 1


async def test_b71_an_undeclared_limit_reserves_the_default_and_ends_at_the_window() -> None:
    settings = config(admission={"default_output_tokens": 32}, policy={"rule": "declared"})
    async with fleet(PAIR, settings=settings, max_model_len=256) as one:
        wanted = intent(prompt(40), declared=False, max_tokens=100_000, ignore_eos=True)
        answer = await one.ask(wanted)
        assert answer.record.reserved_blocks == -(-(40 + 32) // BLOCK)
        assert len(answer.tokens()) == 256 - 40
        assert answer.finish() is FinishReason.LENGTH
        await one.settled()


async def test_a_stopped_choice_ends_in_the_engine_and_the_others_go_on() -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(40), n=2, max_tokens=60, ignore_eos=True)
        record = one.record(wanted)
        seen = {0: 0, 1: 0}
        async with one.lifecycle.open(wanted, record) as stream:
            async for batch in stream:
                for piece in batch:
                    seen[piece.choice] += len(piece.tokens)
                if seen[0] and 0 in {piece.choice for piece in batch} and seen[0] < 60:
                    await stream.stop_choice(0)
        assert seen[0] < 60
        assert seen[1] == 60
        assert record.phase is DONE
        await one.settled()


async def test_stopping_the_only_choice_ends_the_answer() -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(40), max_tokens=1000, ignore_eos=True)
        record = one.record(wanted)
        async with one.lifecycle.open(wanted, record) as stream:
            async for batch in stream:
                await stream.stop_choice(batch[0].choice)
        assert record.phase is DONE
        assert record.reason is None
        await one.settled()


async def test_a_mixed_fleet_uses_every_worker() -> None:
    roles = (("p0", Role.PREFILL), ("d0", Role.DECODE), ("b0", Role.BOTH))
    async with fleet(roles, profile="toy") as one:
        answers = await asyncio.gather(
            *[one.ask(intent(prompt(40, seed), max_tokens=40, ignore_eos=True)) for seed in range(12)]
        )
        assert {answer.record.path for answer in answers} == {"remote", "colocated"}
        assert one.cluster.snapshot().mode == "mixed"
        for seed, answer in enumerate(answers):
            assert answer.tokens() == expected(prompt(40, seed), Sampling(40, temperature=0.0, ignore_eos=True))
        await one.settled()


async def test_prefill_workers_without_decode_workers_feed_those_of_both_roles() -> None:
    async with fleet((("p0", Role.PREFILL), ("b0", Role.BOTH))) as one:
        answer = await one.ask(intent(prompt(40)))
        assert answer.record.path == "remote"
        assert answer.tokens() == expected(prompt(40), intent().sampling)


def test_the_byte_vocabulary_has_the_eos_that_these_tests_force() -> None:
    assert VOCABULARY.eos == (256,)
    assert answer_limit(intent(max_tokens=5), 0, 100) == 5
