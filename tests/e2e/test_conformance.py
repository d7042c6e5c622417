"""Rows of the conformance catalogue that only a real engine can show."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from tests.e2e.answers import Streamed, completion, prompt, stream, texts
from tests.e2e.stack import PATIENT, READY_WITHIN_S, Stack, colocated_gateway, is_idle, up
from tests.waiting import HANG_S, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["river", "mountain"]},
        "high": {"type": "boolean"},
        "rank": {"enum": [1, 22, 333]},
    },
    "required": ["kind", "high", "rank"],
    "additionalProperties": False,
}


def blanks(model: Path) -> dict[str, float]:
    """A grammar allows white space without end, and a random model takes it up on that."""
    vocabulary = Tokenizer.from_file(str(model / "tokenizer.json")).get_vocab()
    return {str(token): -100.0 for word, token in vocabulary.items() if set(word) <= set("ĠĊĉč \n\t")}


async def test_b19_the_grammar_sees_every_token_once(pair: Stack, tiny_model: Path) -> None:
    """Structured answers of a handed-off prompt are valid, and those of a colocated worker to the letter."""
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    grammar: dict[str, Any] = {"response_format": wanted, "ignore_eos": False, "logit_bias": blanks(tiny_model)}
    bodies = [
        completion(prompt(length, seed=length), 200) | grammar for length in (20, 63, 64, 127, 128, 129, 255, 300)
    ]
    before = pair.settled_transfers()
    answers = await texts(pair.url, bodies)
    await asyncio.to_thread(pair.wait_transfers, before + len(bodies))
    for answer in answers:
        parsed = json.loads(answer)
        assert set(parsed) == {"kind", "high", "rank"}
        assert parsed["rank"] in (1, 22, 333)
    assert len(set(answers)) > 1
    with colocated_gateway(pair, "decode-0") as reference_url:
        assert await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies]) == answers


async def test_seeded_answers_do_not_depend_on_how_their_prompts_were_cut(pair: Stack) -> None:
    """Many prompts at once are computed in chunks; a seed must then neither end the engine nor change its answers."""
    bodies = [completion(prompt(700, seed=100 + number), 6) for number in range(12)]
    seeded = [body | {"temperature": 0.9, "seed": number} for number, body in enumerate(bodies)]
    together = await texts(pair.url, seeded, at_once=12)
    assert await texts(pair.url, [body | {"cache_salt": "alone"} for body in seeded], at_once=1) == together
    assert together != await texts(pair.url, bodies)


async def test_b27_tickets_of_clients_that_left_are_released_not_left_to_expire(pair: Stack) -> None:
    await asyncio.to_thread(pair.wait_idle)
    before = pair.worker("prefill-0")
    dice = random.Random(27)

    async def leave(client: httpx.AsyncClient, seed: int) -> None:
        """At any moment, or with the first token in hand: then the ticket waits for its reader."""
        seen, patience_s = Streamed(), dice.choice((None, dice.uniform(0.0, 0.5)))
        task = asyncio.create_task(stream(client, completion(prompt(256 + seed, seed=2700 + seed), 60), seen))
        if patience_s is None:
            await until(lambda: bool(seen.chunks) or task.done())
        else:
            await asyncio.sleep(patience_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        for wave in range(12):
            await asyncio.gather(*[leave(client, 12 * wave + number) for number in range(12)])
            # What the workers hold shows in their next state, half a second later at most.
            await asyncio.to_thread(pair.wait, "both sides at baseline", is_idle, HANG_S)
            released = pair.worker("prefill-0")["tickets_released"] - before["tickets_released"]
            if wave >= 5 and released:
                break
    after = pair.worker("prefill-0")
    assert after["tickets_released"] > before["tickets_released"]
    assert after["tickets_expired"] == before["tickets_expired"]
    assert after["blocks_used"] == 0


@pytest.fixture(scope="module")
def tight(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two prefill workers before a decode worker with room for four long answers, and growth estimated too low."""
    with up(
        tmp_path_factory.mktemp("tight"),
        *("--model", str(tiny_model), "--prefill", "2", "--decode", "1", "--kv-cache-gib", "0.016"),
        *("--set", "gateway.routing.local_prefill_below_tokens=0"),
        *("--set", "gateway.admission.default_output_tokens=64", "--set", "gateway.policy.rule=declared"),
        *(part for each in PATIENT for part in ("--set", each)),
    ) as stack:
        stack.wait("two pairs", lambda s: [p["state"] for p in s["pairs"]] == ["usable"] * 2, READY_WITHIN_S)
        yield stack


async def test_b57_decode_that_preempts_recomputes_and_never_pulls_twice(tight: Stack) -> None:
    decode = tight.worker("decode-0")
    most = (decode["blocks_total"] * decode["block_size_tokens"]) // 900
    assert 2 <= most <= 8, decode
    bodies = [completion(prompt(100, seed=57 + number), 1) for number in range(2 * most + 2)]
    for body in bodies:
        del body["max_tokens"]
    before = {pair["prefill_worker"]: pair["transfers"] for pair in tight.pairs()}
    alone = await texts(tight.url, bodies[:2], at_once=1)
    rounds = 0
    while tight.worker("decode-0")["preemptions"] == decode["preemptions"] and rounds < 4:
        rounds += 1  # on a busy machine prompts may arrive one after the other and never meet
        together = await texts(tight.url, bodies, at_once=len(bodies))
        assert together[:2] == alone
        await asyncio.to_thread(tight.wait_idle)
        await asyncio.sleep(1.0)
    assert tight.worker("decode-0")["preemptions"] > decode["preemptions"]
    moved = sum(pair["transfers"] - before[pair["prefill_worker"]] for pair in tight.pairs())
    assert moved == rounds * len(bodies) + 2
    assert sum(pair["failures"] for pair in tight.pairs()) == 0


async def test_b48_a_prefill_worker_that_dies_as_its_kv_is_fetched_costs_no_answer(tight: Stack) -> None:
    """Killed while a backlog of prompts is prefilled, handed over and pulled: the other one computes them again."""
    bodies = [completion(prompt(700, seed=4800 + number), 4) for number in range(16)]
    expected = await texts(tight.url, bodies)
    fresh = [body | {"cache_salt": "second time"} for body in bodies]
    async with httpx.AsyncClient(base_url=tight.url, timeout=3 * HANG_S) as client:
        streams = [Streamed() for _ in fresh]
        tasks = [asyncio.create_task(stream(client, body, seen)) for body, seen in zip(fresh, streams, strict=True)]
        await asyncio.to_thread(tight.wait, "the first tokens", lambda s: bool(s["in_flight"].get("decoding")), HANG_S)
        tight.child("prefill-0").kill()
        await asyncio.gather(*tasks)
    for seen, text in zip(streams, expected, strict=True):
        # Nothing waits for KV of the dead; only a token that was shown already may not be taken back.
        assert (seen.text, seen.done) == (text, True) or (seen.error is not None and seen.broken), seen
    assert sum(seen.done for seen in streams) >= len(streams) - 2
    await asyncio.to_thread(
        tight.wait, "prefill-0 back", lambda s: [p["state"] for p in s["pairs"]] == ["usable"] * 2, READY_WITHIN_S
    )
    assert await texts(tight.url, bodies) == expected
