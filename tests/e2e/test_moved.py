"""A running answer of the real engine leaves a full worker for one with room: the same text, KV read and not computed again."""

import asyncio

import httpx
import pytest

from tests.e2e.answers import completion, prompt, texts
from tests.e2e.stack import colocated_gateway, paired, up
from tests.models import tiny_llama
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: Long enough to be still under way when the second worker comes back.
ANSWER_TOKENS = 700
LENGTHS = (40, 100, 127, 200)
SETTINGS = ("gateway.policy.balance.above=0.1", "gateway.policy.balance.spread=0.1", "engine.kv_blocks=64")


async def test_answers_that_move_are_those_of_one_worker(tmp_path_factory: pytest.TempPathFactory) -> None:
    flags = ("--colocated", "2", "--model", str(tiny_llama()))
    sets = [part for one in SETTINGS for part in ("--set", one)]
    with up(tmp_path_factory.mktemp("moved"), *flags, *sets) as stack:
        bodies = [completion(prompt(length, seed=length), ANSWER_TOKENS) for length in LENGTHS]
        away, here = "colocated-1", "colocated-0"
        stack.wait("both workers here", paired, HANG_S)
        async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S) as client:
            (await client.post(f"/tandem/v1/workers/{away}/drain")).raise_for_status()
            running = asyncio.create_task(texts(stack.url, bodies))
            await asyncio.to_thread(
                stack.wait, "all run", lambda _: stack.worker(here)["running"] == len(bodies), HANG_S
            )
            (await client.post(f"/tandem/v1/workers/{away}/resume")).raise_for_status()
            answers = await running
            stack.wait_idle()
            metrics = (await client.get("/metrics")).text
        moved = [line for line in metrics.splitlines() if line.startswith("tandem_moves_total{") and "moved" in line]
        pair = next(one for one in stack.pairs() if one["prefill_worker"] == here)
        with colocated_gateway(stack, here) as reference_url:
            expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])
    assert answers == expected
    assert moved
    assert sum(float(line.rpartition(" ")[2]) for line in moved) >= 1
    assert pair["bytes"] > 0
    assert pair["failures"] == 0
