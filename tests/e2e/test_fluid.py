"""Fluid roles on the real engine: one of two workers leans to prefill and hands over what the other has no time for."""

import httpx
import pytest

from tests.e2e.answers import completion, prompt, texts
from tests.e2e.stack import Gateway, Stack, another_gateway, colocated_gateway, paired
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: The CPU engine's KV block.
BLOCK = 128
ANSWER_TOKENS = 20
LENGTHS = (40, BLOCK - 1, BLOCK, BLOCK + 1, 200, 2 * BLOCK, 300, 320, 340, 360)
FLUID = ("ttft_ms=100", "tpot_ms=100", 'leaning=["colocated-0"]')


def moved(gateway: Gateway) -> dict[tuple[str, str], tuple[int, int]]:
    """Transfers and bytes by writer and reader."""
    return {(p["prefill_worker"], p["decode_worker"]): (p["transfers"], p["bytes"]) for p in gateway.pairs()}


def ways_of(gateway: Gateway) -> dict[str, int]:
    """Prompts by the way that the policy chose."""
    ways: dict[str, int] = gateway.status()["policy"]["roles"]["ways"]
    return ways


async def test_some_are_handed_over_and_some_are_not_and_all_are_right(both: Stack) -> None:
    settings = [f"gateway.routing.fluid.{each}" for each in FLUID]
    bodies = [completion(prompt(length, seed=length), ANSWER_TOKENS) for length in LENGTHS]
    there, back = ("colocated-0", "colocated-1"), ("colocated-1", "colocated-0")
    with another_gateway(both, there, *settings) as gateway:
        gateway.wait("both workers", paired, HANG_S)
        before, ways_before = moved(gateway), ways_of(gateway)
        answers = await texts(gateway.url, bodies, at_once=len(bodies))
        gateway.wait_idle()
        ways = {way: count - ways_before[way] for way, count in ways_of(gateway).items()}
        arrived = before[there][0] + ways["handed"]
        gateway.wait("the reader's newest state", lambda _: moved(gateway)[there][0] >= arrived, HANG_S)
        after = moved(gateway)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=HANG_S) as client:
            reply = await client.post("/v1/completions", json=bodies[0])
            decided = (await client.get(f"/tandem/v1/decisions/{reply.headers['x-tandem-request-id']}")).json()
        workers = [gateway.worker(name) for name in there]
    with another_gateway(both, there, *settings, "gateway.routing.handoff_after_tokens=6") as gateway:
        gateway.wait("both workers", paired, HANG_S)
        later = await texts(gateway.url, [body | {"cache_salt": "later"} for body in bodies], at_once=len(bodies))
        ways_later = ways_of(gateway)
        workers += [gateway.worker(name) for name in there]
    with colocated_gateway(both, "colocated-1") as reference_url:
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])

    assert answers == expected
    assert later == expected
    assert ways_later["handed_later"] > 0
    assert ways["handed"] + ways["together"] == len(bodies)
    assert ways["handed"] > 0
    assert ways["together"] > 0
    assert after[there][0] - before[there][0] == ways["handed"]
    assert after[there][1] > before[there][1]
    assert after[back] == before[back]
    assert {way["computed_by"] for way in decided["prompts"][0]["looks"][0]["ways"]} == set(there)
    for worker in workers:
        assert worker["consecutive_faults"] == 0
        assert (worker["tickets_expired"], worker["failed_notifications"]) == (0, 0)
