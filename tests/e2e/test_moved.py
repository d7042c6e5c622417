"""A running answer of the real engine leaves a full worker for one with room: the same text, KV read and not computed again."""

import asyncio
import time

import httpx
import pytest

from tests.e2e.answers import completion, prompt, texts
from tests.e2e.stack import WATCH_INTERVAL_S, Stack, another_gateway, colocated_gateway, paired
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: Long enough to be still under way when the second worker comes back.
ANSWER_TOKENS = 700
LENGTHS = (40, 100, 127, 200)
SETTINGS = ("gateway.policy.balance.above=0.1", "gateway.policy.balance.spread=0.1")


async def test_answers_that_move_are_those_of_one_worker(both: Stack) -> None:
    bodies = [completion(prompt(length, seed=length), ANSWER_TOKENS) for length in LENGTHS]
    away, here = "colocated-1", "colocated-0"
    with another_gateway(both, (here, away), *SETTINGS) as gateway:
        gateway.wait("both workers here", paired, HANG_S)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=HANG_S) as client:
            (await client.post(f"/tandem/v1/workers/{away}/drain")).raise_for_status()
            running = asyncio.create_task(texts(gateway.url, bodies))
            await asyncio.to_thread(
                gateway.wait, "all run", lambda _: gateway.worker(here)["running"] == len(bodies), HANG_S
            )
            (await client.post(f"/tandem/v1/workers/{away}/resume")).raise_for_status()
            answers = await running
            gateway.wait_idle()
            metrics = (await client.get("/metrics")).text
        pair = next(one for one in gateway.pairs() if one["prefill_worker"] == here)
    moved = [line for line in metrics.splitlines() if line.startswith("tandem_moves_total{") and "moved" in line]
    with colocated_gateway(both, here) as reference_url:
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])
    assert answers == expected
    assert moved
    assert sum(float(line.rpartition(" ")[2]) for line in moved) >= 1
    assert pair["bytes"] > 0
    assert pair["failures"] == 0


async def test_a_worker_that_drains_is_rid_of_its_answers_while_they_run(both: Stack) -> None:
    """They would have kept it for as long as they last: its KV is read elsewhere, and it is idle."""
    bodies = [completion(prompt(length, seed=length + 1), ANSWER_TOKENS) for length in LENGTHS]
    away, here = "colocated-1", "colocated-0"
    with another_gateway(both, (here, away)) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=HANG_S) as client:

            async def order(worker: str, what: str) -> None:
                (await client.post(f"/tandem/v1/workers/{worker}/{what}")).raise_for_status()

            await order(away, "drain")
            running = asyncio.create_task(texts(gateway.url, bodies))
            await asyncio.to_thread(
                gateway.wait, "all run", lambda _: gateway.worker(here)["running"] == len(bodies), HANG_S
            )
            await order(away, "resume")
            await order(here, "drain")
            try:
                await asyncio.to_thread(
                    gateway.wait, "it is rid of them", lambda _: gateway.worker(here)["sequences"] == 0, HANG_S
                )
                assert not running.done()
                answers = await running
                gateway.wait_idle()
                metrics = (await client.get("/metrics")).text
                pair = next(one for one in gateway.pairs() if one["prefill_worker"] == here)
            finally:
                await order(here, "resume")
    moved = 'tandem_moves_total{outcome="moved",reason="drain"}'
    assert sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(moved)) == len(bodies)
    assert pair["bytes"] > 0
    with colocated_gateway(both, here) as reference_url:
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])
    assert answers == expected


async def test_answers_that_outgrow_their_worker_go_on_where_there_is_room(both: Stack) -> None:
    """Twelve are believed to be short, and have KV for eight. Who is preempted before it has left is computed twice: fewer than move."""
    bodies = [completion(prompt(200, seed=number), 1) for number in range(100, 112)]
    for body in bodies:
        del body["max_tokens"]  # to the end of the window
    away, here = "colocated-1", "colocated-0"
    short = ("gateway.policy.rule=declared", "gateway.admission.default_output_tokens=16")
    with another_gateway(both, (here, away), *short) as gateway:

        def preempted() -> int:
            time.sleep(2 * WATCH_INTERVAL_S)  # counters come with the next state
            return sum(int(gateway.worker(name)["preemptions"]) for name in (here, away))

        before = await asyncio.to_thread(preempted)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=HANG_S) as client:
            (await client.post(f"/tandem/v1/workers/{away}/drain")).raise_for_status()
            running = asyncio.create_task(texts(gateway.url, bodies, at_once=len(bodies)))
            await asyncio.to_thread(
                gateway.wait, "all run", lambda _: gateway.worker(here)["running"] == len(bodies), HANG_S
            )
            (await client.post(f"/tandem/v1/workers/{away}/resume")).raise_for_status()
            answers = await running
            after = await asyncio.to_thread(preempted)
            metrics = (await client.get("/metrics")).text
    moved = 'tandem_moves_total{outcome="moved",reason="overrun"}'
    arrived = sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(moved))
    assert arrived >= 4
    assert after - before < arrived
    with colocated_gateway(both, here) as reference_url:
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies], at_once=4)
    assert answers == expected
