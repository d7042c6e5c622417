"""Greedy answers are the same disaggregated as colocated, token for token, and the KV really moves."""

import asyncio
import random
from collections.abc import Iterable

import pytest

from tests.engine.vllm.driver import Answer, Driver, greedy, prefill_sampling
from tests.models import TINY_CONTEXT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

_ANSWER = 8
_EDGES = [block * 128 + offset for block in range(1, 8) for offset in (-2, -1, 0, 1, 2)]
_LENGTHS = sorted({1, 2, 3, 15, 16, 17, 64, *_EDGES, *range(40, 1000, 53), 1000, 1015, 1016, 1021, 1022, 1023})


def _prompts(lengths: Iterable[int], seed: int) -> list[tuple[int, ...]]:
    draw = random.Random(seed)
    return [tuple(draw.randrange(100, 49_000) for _ in range(length)) for length in lengths]


def _room(prompt: tuple[int, ...]) -> int:
    return min(_ANSWER, TINY_CONTEXT - len(prompt))


async def _colocated(engine: Driver, prompt: tuple[int, ...]) -> tuple[int, ...]:
    answer = await engine.run(prompt, greedy(_room(prompt)), salt="reference")
    return answer.tokens


async def _replay(writer: Driver, reader: Driver, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The prefill's token is dropped; the reader samples it again from the prompt alone."""
    prefilled = await writer.run(prompt, prefill_sampling(), hold=True, salt="replay")
    answer = await reader.run(prompt, greedy(_room(prompt)), pull=prefilled.ticket, salt="replay")
    assert answer.last.fault is None
    return answer.tokens


async def _carry(writer: Driver, reader: Driver, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The prefill's token is the answer's first; the reader goes on from prompt and token."""
    prefilled = await writer.run(prompt, prefill_sampling(), hold=True, salt="carry")
    room = _room(prompt) - 1
    if not room:
        assert await writer.engine.release(prefilled.ticket.ticket_id)
        return prefilled.tokens
    answer = await reader.run(prompt + prefilled.tokens, greedy(room), pull=prefilled.ticket, salt="carry")
    assert answer.last.fault is None
    return prefilled.tokens + answer.tokens


def _bytes_from(reader: Driver, writer: Driver) -> int:
    peers = {peer.worker_id: peer for peer in reader.engine.stats().transfers}
    return peers[writer.info.worker_id].bytes if writer.info.worker_id in peers else 0


async def _equal(writer: Driver, reader: Driver, reference: Driver, lengths: list[int], seed: int) -> None:
    prompts = _prompts(lengths, seed)
    expected = await asyncio.gather(*(_colocated(reference, prompt) for prompt in prompts))
    before = _bytes_from(reader, writer)
    replayed = await asyncio.gather(*(_replay(writer, reader, prompt) for prompt in prompts))
    assert replayed == expected
    blocks = sum(-(-length // 128) for length in lengths)
    assert _bytes_from(reader, writer) - before == blocks * 128 * writer.info.kv_bytes_per_token
    carriable = [(prompt, answer) for prompt, answer in zip(prompts, expected, strict=True) if len(prompt) % 128]
    carried = await asyncio.gather(*(_carry(writer, reader, prompt) for prompt, _ in carriable))
    assert carried == [answer for _, answer in carriable]
    await writer.settled()
    await reader.settled()
    for stats in (writer.engine.stats(), reader.engine.stats()):
        assert (stats.failed_notifications, stats.tickets_held) == (0, 0)
        assert not any(peer.failures for peer in stats.transfers if peer.worker_id == writer.info.worker_id)
    assert writer.engine.stats().tickets_expired == 0


async def test_tp1_to_tp1_equals_colocated_b09(prefill: Driver, decode: Driver) -> None:
    assert len(_LENGTHS) >= 60
    await _equal(prefill, decode, decode, _LENGTHS, seed=1)


async def test_tp1_to_tp2_equals_colocated_b09(prefill: Driver, decode: Driver, wide: Driver) -> None:
    await _equal(prefill, wide, decode, _LENGTHS, seed=2)


async def test_a_pair_is_warmed_before_traffic_and_measured(prefill: Driver, decode: Driver, wide: Driver) -> None:
    for reader in (decode, wide):
        first = await reader.engine.warm(prefill.info)
        again = await reader.engine.warm(prefill.info)
        assert first.ok
        assert again.ok
        assert first.transport == "shm"
        assert first.bytes_per_s > 0


async def test_an_answer_says_how_long_its_pull_took_and_what_was_cached(prefill: Driver, decode: Driver) -> None:
    (prompt,) = _prompts([300], seed=3)
    prefilled = await prefill.run(prompt, prefill_sampling(), hold=True)
    assert prefilled.ticket.computed_tokens == 300
    assert prefilled.ticket.blocks == 3
    assert prefilled.ticket.kv_bytes == 3 * 128 * prefill.info.kv_bytes_per_token
    assert prefilled.outputs[-1].compute_s > 0
    answer = await decode.run(prompt, greedy(4), pull=prefilled.ticket)
    assert answer.first.transfer_s > 0
    assert answer.first.cached_tokens == 0
    again: Answer = await decode.run(prompt, greedy(4))
    assert again.tokens == answer.tokens
    assert again.first.cached_tokens == 256  # the other choices of n > 1 start from what the first has pulled


async def test_a_wide_writer_serves_a_narrow_reader(decode: Driver, wide: Driver) -> None:
    prompts = _prompts([1, 127, 128, 129, 300, 513], seed=4)
    expected = await asyncio.gather(*(_colocated(decode, prompt) for prompt in prompts))
    assert await asyncio.gather(*(_replay(wide, decode, prompt) for prompt in prompts)) == expected
    await wide.settled()
