"""Clients that leave, in every phase, on the real engine: nothing is left behind and nobody else notices."""

import asyncio
import random
from typing import Any

import httpx
import pytest

from tests.e2e.answers import completion, prompt, stream, texts
from tests.e2e.stack import Stack, is_idle
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SURVIVORS = 50
LEAVERS = 200


async def _leave_after(client: httpx.AsyncClient, body: dict[str, Any], patience_s: float) -> None:
    with_patience = asyncio.wait_for(stream(client, body), patience_s)
    try:
        await with_patience
    except (TimeoutError, httpx.HTTPError):
        return


@pytest.mark.parametrize("phase", ["prefilling", "decoding"])
async def test_b34_leaving_stops_the_engine_and_frees_both_sides(pair: Stack, phase: str) -> None:
    """The client hangs up once the gateway says its request is in `phase`."""
    before = pair.wait_idle()
    prompts = [prompt(900, seed=random.randrange(10**6)) for _ in range(12)]
    body = completion(prompts[0], 120) | {"prompt": prompts}
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        task = asyncio.create_task(stream(client, body))
        await asyncio.to_thread(pair.wait, phase, lambda s: bool(s["in_flight"].get(phase)), HANG_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    after = await asyncio.to_thread(pair.wait, "both sides back to baseline", is_idle, HANG_S)
    made = [sum(worker["generated_tokens"] for worker in status["workers"]) for status in (before, after)]
    assert made[1] - made[0] < len(prompts) * 120, "it went on to the end"


async def test_b30_b37_two_hundred_leavers_among_fifty_survivors(pair: Stack) -> None:
    rng = random.Random(20)
    surviving = [completion(prompt(rng.randint(1, 300), seed=i), rng.randint(1, 24)) for i in range(SURVIVORS)]
    leaving = [completion(prompt(rng.randint(1, 600), seed=500 + i), 60) for i in range(LEAVERS)]
    expected = await texts(pair.url, surviving)
    async with httpx.AsyncClient(base_url=pair.url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:
        gate = asyncio.Semaphore(24)

        async def leaver(body: dict[str, Any]) -> None:
            async with gate:
                await _leave_after(client, body, rng.uniform(0.0, 1.2))

        survivors = asyncio.create_task(texts(pair.url, surviving))
        await asyncio.gather(*(leaver(body) for body in leaving))
        answers = await survivors
    assert answers == expected
    await asyncio.to_thread(pair.wait_idle)
    pair_state = pair.pairs()[0]
    assert (pair_state["failures"], pair_state["state"]) == (0, "usable")
    # and the next request is served as if nothing had been
    assert await texts(pair.url, surviving[:1]) == expected[:1]
