"""What a request may ask for, and what each answer must carry, on the real engine."""

import asyncio
import json
import random
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer

from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.work import FinishReason, Work
from tests.engine.vllm.driver import Driver, greedy
from tests.models import TINY_CONTEXT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

_DRAW = random.Random(11)
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "ripe": {"type": "boolean"}},
    "required": ["colour", "ripe"],
    "additionalProperties": False,
}


def _prompt(length: int) -> tuple[int, ...]:
    return tuple(_DRAW.randrange(100, 49_000) for _ in range(length))


async def test_one_frame_a_step_carries_every_running_request(decode: Driver) -> None:
    before = decode.frames
    steps = decode.engine.stats().steps
    answers = await asyncio.gather(*(decode.run(_prompt(20), greedy(60)) for _ in range(8)))
    assert all(len(answer.tokens) == 60 for answer in answers)
    frames = decode.frames - before
    assert 60 <= frames < 60 + 20
    assert frames <= decode.engine.stats().steps - steps
    assert decode.engine.stats().step_time_s > 0


async def test_a_seed_makes_sampling_repeatable(decode: Driver) -> None:
    prompt = _prompt(40)
    runs = [
        (await decode.run(prompt, Sampling(max_tokens=20, temperature=1.0, seed=seed))).tokens for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


async def test_logprobs_are_aligned_and_as_many_as_asked_b15(decode: Driver) -> None:
    prompt = _prompt(30)
    wide, narrow, sampled = await asyncio.gather(
        decode.run(prompt, Sampling(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=5)),
        decode.run(prompt, Sampling(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=2)),
        decode.run(prompt, Sampling(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=0)),
    )
    for answer, alternatives in ((wide, 5), (narrow, 2), (sampled, 0)):
        positions = [position for output in answer.outputs for position in output.delta.logprobs]
        assert [position.token_ids[0] for position in positions] == list(answer.tokens)
        for position in positions:
            assert len(position.token_ids) == len(position.logprobs) == len(position.ranks) == alternatives + 1
            assert position.ranks[0] == 1  # greedy takes the best
            assert all(logprob <= 0.0 for logprob in position.logprobs)


async def test_prompt_logprobs_cover_the_prompt_even_when_it_is_cached_b07(prefill: Driver) -> None:
    prompt = _prompt(300)
    sampling = Sampling(max_tokens=1, temperature=0.0, prompt_logprobs=2, ignore_eos=True)
    for _ in range(2):
        answer = await prefill.run(prompt, sampling, hold=True)
        positions = answer.first.prompt_logprobs
        assert len(positions) == 300
        assert positions[0] is None
        known = [position.token_ids[0] for position in positions[1:] if position is not None]
        assert tuple(known) == prompt[1:]
        assert await prefill.engine.release(answer.ticket.ticket_id)
    await prefill.settled()


async def test_stops_limits_and_bias_are_obeyed_b12(decode: Driver) -> None:
    prompt = _prompt(25)
    free = (await decode.run(prompt, greedy(12))).tokens
    stopped = await decode.run(
        prompt, Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, stop_token_ids=(free[5],))
    )
    cut = free.index(free[5]) + 1
    assert stopped.tokens == free[:cut]
    assert stopped.last.finish is FinishReason.STOP
    late = await decode.run(
        prompt, Sampling(max_tokens=12, min_tokens=cut + 1, temperature=0.0, ignore_eos=True, stop_token_ids=(free[5],))
    )
    assert len(late.tokens) > cut
    ended = await decode.run(prompt, Sampling(max_tokens=12, temperature=0.0, logit_bias=((2, 100.0),)))
    assert ended.tokens == (2,)
    assert ended.last.finish is FinishReason.STOP
    going = await decode.run(prompt, Sampling(max_tokens=3, temperature=0.0, ignore_eos=True, logit_bias=((2, 100.0),)))
    assert going.tokens == (2, 2, 2)
    assert going.last.finish is FinishReason.LENGTH


async def test_penalties_and_truncation_change_what_is_drawn(decode: Driver) -> None:
    prompt = _prompt(25)
    repeat = ((77, 20.0),)
    plain = await decode.run(prompt, Sampling(max_tokens=8, temperature=0.0, ignore_eos=True, logit_bias=repeat))
    assert plain.tokens.count(77) == 8
    penalties: tuple[dict[str, Any], ...] = (
        {"presence_penalty": 2.0, "frequency_penalty": 2.0, "logit_bias": ((77, 3.0), (78, 2.5))},
        {"repetition_penalty": 2.0, "logit_bias": ((77, 20.0), (78, 19.0))},
    )
    for penalty in penalties:
        sampling = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True, **penalty)
        assert (await decode.run(prompt, sampling)).tokens.count(77) < 8
    greedy_tokens = (await decode.run(prompt, greedy(8))).tokens
    truncations: tuple[dict[str, Any], ...] = ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0})
    for only_best in truncations:
        sampling = Sampling(max_tokens=8, temperature=1.0, ignore_eos=True, **only_best)
        assert (await decode.run(prompt, sampling)).tokens == greedy_tokens


async def test_a_json_schema_is_followed_b19(decode: Driver) -> None:
    structured = StructuredOutput(StructuredKind.JSON_SCHEMA, json.dumps(_SCHEMA))
    blanks = tuple((token, -1000.0) for token in range(decode.info.vocab_size) if _text(decode, (token,)).isspace())
    sampling = Sampling(max_tokens=400, temperature=0.0, structured=structured, logit_bias=blanks)
    answer = await decode.run(_prompt(30), sampling)  # a random model would put blanks between two tokens for ever
    assert answer.last.finish is FinishReason.STOP
    value = json.loads(_text(decode, answer.tokens))
    assert value["colour"] in ("red", "green")
    assert value["ripe"] in (True, False)


async def test_json_object_begins_an_object(decode: Driver) -> None:
    structured = StructuredOutput(StructuredKind.JSON_OBJECT)
    answer = await decode.run(_prompt(30), Sampling(max_tokens=20, temperature=0.0, structured=structured))
    assert _text(decode, answer.tokens).lstrip().startswith("{")


async def test_salts_keep_cached_prefixes_apart(decode: Driver) -> None:
    prompt = _prompt(300)
    cached = [(await decode.run(prompt, greedy(1), salt=salt)).first.cached_tokens for salt in ("a", "a", "b", "")]
    assert cached == [0, 256, 0, 0]


async def test_urgent_requests_go_first(decode: Driver) -> None:
    """A lower number is more urgent, as in vLLM. The slots are full, so order is all that is left."""
    slots = decode.info.max_num_seqs
    long_runs = [Work(decode.name(), _prompt(4), greedy(30)) for _ in range(slots)]
    later = Work(decode.name(), _prompt(4), greedy(1), priority=5)
    urgent = Work(decode.name(), _prompt(4), greedy(1), priority=-5)
    for work in (*long_runs, later, urgent):
        decode.submit(work)
    first = await decode.next(urgent.request_id)
    assert first.delta.ended
    assert not decode.pending(later.request_id)
    for work in long_runs:
        while not (await decode.next(work.request_id)).delta.ended:
            pass
    assert (await decode.next(later.request_id)).delta.ended
    await decode.settled()


async def test_the_window_ends_an_answer(decode: Driver) -> None:
    answer = await decode.run(_prompt(TINY_CONTEXT - 3), greedy(50))
    assert answer.last.finish is FinishReason.LENGTH
    assert len(answer.tokens) == 3


@pytest.mark.parametrize(
    ("tokens", "sampling", "kind"),
    [
        ((5,) * TINY_CONTEXT, greedy(1), FaultKind.CONTEXT_LENGTH),
        ((), greedy(1), FaultKind.INVALID_REQUEST),
        ((5, 10_000_000), greedy(1), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, temperature=3.0), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, top_p=0.0), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, logprobs=1000), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, min_tokens=2), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, logit_bias=((99_999_999, 1.0),)), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, stop_token_ids=(2**40,)), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, seed=2**63), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=2**70), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, temperature=float("nan")), FaultKind.INVALID_REQUEST),
        ((5,), Sampling(max_tokens=1, logit_bias=((7, float("nan")),)), FaultKind.INVALID_REQUEST),
        (
            (5,),
            Sampling(max_tokens=9, structured=StructuredOutput(StructuredKind.JSON_SCHEMA, '{"type": 7}')),
            FaultKind.INVALID_REQUEST,
        ),
        (
            (5,),
            Sampling(max_tokens=9, structured=StructuredOutput(StructuredKind.JSON_SCHEMA, "not json")),
            FaultKind.INVALID_REQUEST,
        ),
    ],
)
async def test_an_impossible_request_is_a_fault_and_the_engine_goes_on_b38(
    decode: Driver, tokens: tuple[int, ...], sampling: Sampling, kind: FaultKind
) -> None:
    """Told at once where the engine can, else as the request's one output."""
    try:
        fault = (await decode.run(tokens, sampling)).last.fault
        assert fault is not None
    except FaultError as refusal:
        fault = refusal.fault
    assert fault.kind is kind
    assert fault.message
    assert len((await decode.run((5, 6, 7), greedy(2))).tokens) == 2


async def test_two_running_requests_cannot_share_an_id(decode: Driver) -> None:
    work = Work(decode.name(), _prompt(10), greedy(200))
    decode.submit(work)
    with pytest.raises(FaultError):
        decode.engine.submit(work)
    await decode.engine.abort(work.request_id)
    await decode.settled()


@cache
def _tokenizer(model_path: str) -> Tokenizer:
    return Tokenizer.from_file(f"{model_path}/tokenizer.json")


def _text(driver: Driver, tokens: tuple[int, ...]) -> str:
    return str(_tokenizer(driver.info.model_path).decode(list(tokens)))
