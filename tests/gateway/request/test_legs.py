"""What the pools are asked to do (B-01 to B-07). Pure."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.intent import Intent
from gateway.request.legs import (
    Carried,
    Leg,
    Mode,
    answer_limit,
    begin_leg,
    begun_tokens,
    decode_leg,
    judge_carried,
    planned,
    precedence_of,
    prefill_leg,
    remote_mode,
)
from proto import services
from proto.precedence import Precedence
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.work import Start

BLOCK = 16
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 500),
    min_tokens=st.integers(0, 500),
    temperature=st.sampled_from([0.0, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    seed=st.none() | st.integers(0, 9),
    stop_token_ids=st.sampled_from([(), (5, 6)]),
    ignore_eos=st.booleans(),
    logit_bias=st.sampled_from([(), ((3, 1.0),)]),
    logprobs=st.none() | st.integers(0, 5),
    prompt_logprobs=st.none() | st.integers(0, 5),
    structured=st.none() | st.just(StructuredOutput(StructuredKind.JSON_OBJECT)),
)
intents = st.builds(
    lambda lengths, n, sampling, declared: Intent(
        "r", "m", tuple(tuple(range(1, length + 1)) for length in lengths), n, sampling, declared, "t", 3, "salt"
    ),
    st.lists(st.integers(1, 70), min_size=1, max_size=3),
    st.integers(1, 3),
    samplings,
    st.booleans(),
)
legs = st.builds(
    lambda intent, carried: Leg(intent, 0, "w", 1000, 0, carried),
    intents,
    st.lists(st.integers(1, 200), max_size=3).map(tuple),
).filter(lambda leg: leg.sampling.max_tokens >= 1)


def one(length: int = 40, n: int = 1, declared: bool = True, **more: Any) -> Intent:
    wanted = Sampling(**{"max_tokens": 200, "temperature": 0.0, **more})
    return Intent("r", "m", (tuple(range(length)),), n, wanted, declared)


@given(legs, st.sampled_from([Mode.CARRY, Mode.REPLAY]))
def test_b01_to_b06_the_prefill_leg_is_one_token_that_only_length_can_end(leg: Leg, mode: Mode) -> None:
    work = prefill_leg(leg, mode)
    assert work.tokens == leg.tokens
    assert work.sampling.max_tokens == 1
    assert work.sampling.min_tokens in (0, 1)
    assert work.sampling.ignore_eos
    assert work.sampling.stop_token_ids == ()
    assert work.sampling.structured is None
    assert (work.priority, work.cache_salt) == (3, "salt")


@given(legs, st.sampled_from(Mode))
def test_the_decode_leg_wants_what_is_left_of_the_answer(leg: Leg, mode: Mode) -> None:
    work, wanted = decode_leg(leg, mode), leg.intent.sampling
    assert work.tokens == leg.intent.prompts[0] + leg.carried
    assert work.sampling.max_tokens + len(leg.carried) == answer_limit(leg.intent, 0, leg.window)
    assert work.sampling.min_tokens == max(0, wanted.min_tokens - len(leg.carried))
    assert work.sampling.stop_token_ids == wanted.stop_token_ids
    assert work.sampling.ignore_eos == wanted.ignore_eos
    assert work.sampling.structured == wanted.structured
    assert work.sampling.logprobs == wanted.logprobs


@pytest.mark.parametrize("seed", [0, 2**63 - 1, -(2**63)])
def test_b06_every_answer_draws_from_a_seed_of_its_own_that_the_wire_can_carry(seed: int) -> None:
    intent = one(n=3, seed=seed, temperature=1.0)
    works = [decode_leg(Leg(intent, 0, "w", 1000, answer), Mode.REPLAY) for answer in range(3)]
    assert works[0].sampling.seed == seed
    assert len({work.sampling.seed for work in works}) == 3
    for work in works:
        sent = Start(1, "r", work)
        assert services.ATTACH.decode_request(services.ATTACH.encode_request(sent)) == sent


@given(legs, st.sampled_from(Mode))
def test_b07_prompt_logprobs_are_asked_for_once_of_the_leg_that_computes_the_prompt(leg: Leg, mode: Mode) -> None:
    wanted = leg.intent.sampling.prompt_logprobs
    asked = []
    if mode is not Mode.LOCAL:
        asked.append(prefill_leg(leg, mode).sampling.prompt_logprobs)
    asked += [decode_leg(replace(leg, answer=answer), mode).sampling.prompt_logprobs for answer in range(leg.intent.n)]
    expected = [] if wanted is None or leg.carried else [wanted]
    assert [each for each in asked if each is not None] == expected


@given(intents, st.integers(1, 100))
def test_carry_only_where_it_cannot_change_the_answer(intent: Intent, tokens: int) -> None:
    sampling = intent.sampling
    if remote_mode(intent, tokens, BLOCK) is Mode.CARRY:
        assert sampling.seed is None or sampling.temperature == 0
        assert sampling.presence_penalty == sampling.frequency_penalty == 0
        assert sampling.structured is None
        assert intent.n == 1
        # The reader needs no more blocks for the carried token than the writer holds for the prompt.
        assert -(-(tokens + 1) // BLOCK) == -(-tokens // BLOCK)


@pytest.mark.parametrize(
    ("length", "mode"), [(1, Mode.CARRY), (15, Mode.CARRY), (16, Mode.REPLAY), (17, Mode.CARRY), (32, Mode.REPLAY)]
)
def test_block_boundaries_are_replayed(length: int, mode: Mode) -> None:
    assert remote_mode(one(length), length, BLOCK) is mode


@pytest.mark.parametrize(
    "more",
    [
        {"min_tokens": 5},
        {"logit_bias": ((1, 2.0),)},
        {"stop_token_ids": (4,)},
        {"logprobs": 3},
        {"repetition_penalty": 1.3},
        {"seed": 4},
        {"temperature": 1.0},
    ],
)
def test_harmless_parameters_are_carried(more: dict[str, Any]) -> None:
    assert remote_mode(one(**more), 40, BLOCK) is Mode.CARRY


@pytest.mark.parametrize(
    ("token", "more", "verdict"),
    [
        (9, {}, Carried.GO_ON),
        (2, {}, Carried.STOP),
        (2, {"ignore_eos": True}, Carried.GO_ON),
        (7, {"stop_token_ids": (7,)}, Carried.STOP),
        (7, {"stop_token_ids": (7,), "ignore_eos": True}, Carried.STOP),
        (2, {"min_tokens": 1}, Carried.REPLAY),
        (7, {"min_tokens": 3, "stop_token_ids": (7,)}, Carried.REPLAY),
        (9, {"min_tokens": 3}, Carried.GO_ON),
        (9, {"max_tokens": 1}, Carried.LENGTH),
        (2, {"max_tokens": 1}, Carried.STOP),
        (9, {"max_tokens": 1, "min_tokens": 1}, Carried.LENGTH),
    ],
)
def test_the_stop_rules_are_applied_to_the_carried_token(token: int, more: dict[str, Any], verdict: Carried) -> None:
    assert judge_carried(token, one(**more).sampling, (2,)) is verdict


def test_b71_an_undeclared_limit_is_what_the_window_leaves() -> None:
    assert answer_limit(one(40, declared=False, max_tokens=10_000), 0, 256) == 216
    assert answer_limit(one(40, declared=False, max_tokens=100), 0, 256) == 100
    assert answer_limit(one(40, declared=True, max_tokens=100), 0, 256) == 100


def test_every_answer_draws_from_its_own_seed() -> None:
    intent = one(n=3, seed=10, temperature=1.0)
    seeds = [decode_leg(Leg(intent, 0, "w", 256, answer), Mode.LOCAL).sampling.seed for answer in range(3)]
    assert seeds == [10, 11, 12]
    assert decode_leg(Leg(one(seed=10), 0, "w", 256), Mode.LOCAL).sampling.seed == 10


@given(legs, st.integers(1, 40), st.integers(80, 200))
def test_a_hand_off_after_several_tokens_never_meets_a_block_boundary(leg: Leg, wanted: int, window: int) -> None:
    """The reader sends prompt and tokens; of the last one the writer has no KV (the stock connector dies of one more)."""
    first = begun_tokens(leg, wanted, BLOCK, window)
    assert 1 <= first <= wanted + 1
    if first == 1:
        return
    assert len(leg.tokens) + first <= window
    assert first <= leg.sampling.max_tokens
    handed_off = first < leg.sampling.max_tokens
    computed = len(leg.tokens) + first - 1
    assert not (handed_off and computed % BLOCK == 0)


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 1, "temperature": 1.0},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"structured": StructuredOutput(StructuredKind.JSON_OBJECT)},
    ],
)
def test_a_sampling_state_that_cannot_be_carried_is_handed_off_after_one_token(more: dict[str, Any]) -> None:
    assert begun_tokens(Leg(one(**more), 0, "w", 1000), 8, BLOCK, 1000) == 1
    assert begun_tokens(Leg(one(n=2), 0, "w", 1000), 8, BLOCK, 1000) == 1
    assert begun_tokens(Leg(one(), 0, "w", 1000), 8, BLOCK, 1000) == 8


def test_a_leg_that_follows_another_is_handed_off_after_one_token() -> None:
    assert begun_tokens(Leg(one(), 0, "w", 1000, carried=(5,)), 8, BLOCK, 1000) == 1


@given(legs, st.integers(2, 40))
def test_the_first_tokens_are_drawn_under_the_answers_own_rules(leg: Leg, tokens: int) -> None:
    work, wanted = begin_leg(leg, tokens), leg.sampling
    assert work.sampling.min_tokens <= work.sampling.max_tokens == tokens
    same = replace(work.sampling, max_tokens=wanted.max_tokens, min_tokens=wanted.min_tokens)
    assert same == replace(wanted, prompt_logprobs=None if leg.carried else wanted.prompt_logprobs)


def test_an_answer_that_is_computed_once_more_waits_behind_nobody_but_those_that_are_read() -> None:
    assert precedence_of(read=True, begun=True, late=True) is Precedence.BEGUN
    assert precedence_of(read=False, begun=True, late=True) is Precedence.ORDINARY
    assert precedence_of(read=False, begun=False, late=True) is Precedence.LATE
    assert precedence_of(read=False, begun=False, late=False) is Precedence.ORDINARY


def test_a_clients_priority_is_not_the_gateways_precedence() -> None:
    for priority in (-(2**31), 2**31 - 1):
        leg = Leg(replace(one(), priority=priority), 0, "w", 1000)
        work = leg.work(leg.sampling)
        assert (work.priority, work.precedence) == (priority, Precedence.ORDINARY)


@pytest.mark.parametrize(("tools", "kind"), [(False, "-"), (True, "tools")])
def test_answers_that_may_be_calls_are_a_class_of_their_own(tools: bool, kind: str) -> None:
    assert planned(replace(one(), tools=tools), 0, 1000, 1000).features.kind == kind
