"""A running request of the real engine goes on at another: the same greedy answer, its KV read and not computed, nothing held."""

import asyncio
import random
from dataclasses import replace

import pytest

from proto.ticket import Ticket
from proto.work import FinishReason, Work
from tests.engine.vllm.driver import Answer, Driver, greedy, prefill_sampling

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

BLOCK = 128
TOKENS = 120


def _prompt(length: int) -> tuple[int, ...]:
    draw = random.Random(length)
    return tuple(draw.randrange(100, 49_000) for _ in range(length))


async def _started(engine: Driver, work: Work, pull: Ticket | None = None, tokens: int = 3) -> Answer:
    engine.submit(work, pull=pull)
    answer = Answer()
    while len(answer.tokens) < tokens:
        answer.outputs.append(await engine.next(work.request_id))
    return answer


async def _end(engine: Driver, work: Work, answer: Answer) -> Answer:
    while not answer.outputs[-1].delta.ended:
        answer.outputs.append(await engine.next(work.request_id))
    return answer


async def _handed_over(
    engine: Driver, prompt: tuple[int, ...], pull: Ticket | None = None, most: int = TOKENS
) -> Answer:
    work = Work(engine.name(), prompt, greedy(most), cache_salt="moved")
    answer = await _started(engine, work, pull)
    engine.engine.hand_over(work.request_id)
    return await _end(engine, work, answer)


def _bytes(reader: Driver, writer: Driver) -> int:
    return sum(peer.bytes for peer in reader.engine.stats().transfers if peer.worker_id == writer.info.worker_id)


@pytest.mark.parametrize("length", [40, *range(BLOCK - 8, BLOCK + 1), 300])
async def test_a_running_answer_goes_on_at_another_engine(prefill: Driver, decode: Driver, length: int) -> None:
    """Cut in a block and around its end: somewhere there one token more is waited for."""
    prompt = _prompt(length)
    whole = await prefill.run(prompt, greedy(TOKENS), salt="reference")
    before = _bytes(decode, prefill)
    begun = await _handed_over(prefill, prompt)
    assert begun.last.finish is FinishReason.HANDED_OVER, begun.last
    assert 3 <= len(begun.tokens) < TOKENS
    assert begun.ticket.computed_tokens == length + len(begun.tokens) - 1
    left = greedy(TOKENS - len(begun.tokens))
    rest = await decode.run(prompt + begun.tokens, left, pull=begun.ticket, salt="moved")
    assert begun.tokens + rest.tokens == whole.tokens
    assert _bytes(decode, prefill) > before
    await prefill.settled()
    await decode.settled()
    assert prefill.engine.stats().tickets_held == 0


async def test_one_that_pulled_its_prompt_hands_over_what_it_has(prefill: Driver, decode: Driver) -> None:
    """There and back again: what was read from one engine is read from the other."""
    prompt = _prompt(200)
    whole = await prefill.run(prompt, greedy(TOKENS), salt="reference")
    first = await prefill.run(prompt, prefill_sampling(), hold=True, salt="moved")
    there = await _handed_over(decode, prompt + first.tokens, first.ticket, TOKENS - 1)
    assert there.last.finish is FinishReason.HANDED_OVER
    begun = first.tokens + there.tokens
    rest = await prefill.run(prompt + begun, greedy(TOKENS - len(begun)), pull=there.ticket, salt="other")
    assert begun + rest.tokens == whole.tokens
    await prefill.settled()
    await decode.settled()


async def test_one_that_ends_by_itself_pins_nothing(prefill: Driver) -> None:
    prompt = _prompt(60)
    for most in (4, 5):  # its limit is where it would be cut, or before that
        answer = await _handed_over(prefill, prompt, most=most)
        assert (answer.last.finish, len(answer.tokens)) == (FinishReason.LENGTH, most)
        assert answer.outputs[-1].ticket is None
    whole = await prefill.run(prompt, greedy(TOKENS), salt="reference")
    stops = replace(greedy(TOKENS), stop_token_ids=tuple(set(whole.tokens) - set(whole.tokens[:3])))
    work = Work(prefill.name(), prompt, stops, cache_salt="moved")
    answer = await _started(prefill, work)
    prefill.engine.hand_over(work.request_id)
    await _end(prefill, work, answer)
    assert answer.last.finish in (FinishReason.STOP, FinishReason.HANDED_OVER)
    if answer.outputs[-1].ticket is not None:
        assert await prefill.engine.release(answer.ticket.ticket_id)
    await prefill.settled()
    assert prefill.engine.stats().tickets_held == 0


def _stays(answer: Answer) -> int:
    return sum(output.delta.stays for output in answer.outputs)


async def test_one_that_the_engine_keeps_says_so(prefill: Driver) -> None:
    """It has not begun, or would end by itself by then: nobody waits for a ticket."""
    for attempt in range(10):
        work = Work(prefill.name(), _prompt(300 + attempt), greedy(TOKENS), cache_salt="moved")
        prefill.submit(work)
        prefill.engine.hand_over(work.request_id)
        answer = await _end(prefill, work, await _told(prefill, work))
        if answer.last.finish is not FinishReason.HANDED_OVER:
            break
        await prefill.engine.release(answer.ticket.ticket_id)  # on a busy machine it had begun before it was asked
    assert (answer.last.finish, len(answer.tokens), _stays(answer)) == (FinishReason.LENGTH, TOKENS, 1)
    handed = await _handed_over(prefill, _prompt(40))
    assert _stays(handed) == 0
    assert await prefill.engine.release(handed.ticket.ticket_id)
    await prefill.settled()


async def _told(engine: Driver, work: Work) -> Answer:
    answer = Answer()
    answer.outputs.append(await engine.next(work.request_id))
    return answer


async def test_one_that_is_aborted_after_it_was_asked_leaves_nothing(prefill: Driver) -> None:
    for _ in range(4):
        work = Work(prefill.name(), _prompt(300), greedy(TOKENS), cache_salt="moved")
        await _started(prefill, work)
        prefill.engine.hand_over(work.request_id)
        await prefill.engine.abort(work.request_id)
    prefill.engine.hand_over("nobody")
    await prefill.settled()
    assert prefill.engine.stats().tickets_held == 0


async def test_many_at_once_each_go_on_as_they_were(prefill: Driver, decode: Driver) -> None:
    prompts = [_prompt(length) for length in (30, 61, 90, 127, 128, 150)]
    expected = await asyncio.gather(*(prefill.run(prompt, greedy(TOKENS), salt="reference") for prompt in prompts))
    halves = await asyncio.gather(*(_handed_over(prefill, prompt) for prompt in prompts))
    rests = await asyncio.gather(
        *(
            decode.run(prompt + half.tokens, greedy(TOKENS - len(half.tokens)), pull=half.ticket, salt="moved")
            for prompt, half in zip(prompts, halves, strict=True)
        )
    )
    came = [half.tokens + rest.tokens for half, rest in zip(halves, rests, strict=True)]
    assert came == [answer.tokens for answer in expected]
    await prefill.settled()
    await decode.settled()


async def test_two_ranks_hand_over_together(wide: Driver, decode: Driver) -> None:
    """TP 2: the ranks are told of the wish with the next step."""
    begun = await _handed_over(wide, _prompt(150))
    assert begun.last.finish is FinishReason.HANDED_OVER
    assert await wide.engine.release(begun.ticket.ticket_id)
    await wide.settled()
    assert decode.info.hands_over
