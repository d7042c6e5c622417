"""Processes that die, on the real engine: what the clients of each phase see, and that service comes back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.answers import Streamed, completion, prompt, stream, texts
from tests.e2e.stack import READY_WITHIN_S, Stack, up
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def trio(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One prefill worker before two decode workers, so that something is left when one dies."""
    with up(
        tmp_path_factory.mktemp("trio"),
        *("--model", str(tiny_model), "--prefill", "1", "--decode", "2", "--kv-cache-gib", "0.25"),
        *("--set", "gateway.routing.local_prefill_below_tokens=0"),
    ) as stack:
        stack.wait("three workers", lambda s: [w["status"] for w in s["workers"]] == ["ready"] * 3, READY_WITHIN_S)
        stack.wait("two pairs", lambda s: [p["state"] for p in s["pairs"]] == ["usable"] * 2, 60)
        yield stack


async def _stream_until(
    client: httpx.AsyncClient, body: dict[str, Any], all_seen: list[Streamed], enough: asyncio.Event
) -> None:
    """One stream after the other, so that there always is one: how long one lasts is the machine's affair."""
    while not enough.is_set():
        all_seen.append(Streamed())
        await stream(client, body, all_seen[-1])


async def _all_streaming(trio: Stack, clients: list[list[Streamed]], within_s: float = 3 * HANG_S) -> None:
    """Returns when both decode workers have answers under way and every client has seen some of its own."""
    async with asyncio.timeout(within_s):
        while True:
            workers = (await asyncio.to_thread(trio.status))["workers"]
            busy = all(w["sequences"] >= 2 for w in workers if w["role"] == "decode")
            if busy and all(all_seen and 3 <= all_seen[-1].chunks < 500 for all_seen in clients):
                return
            await asyncio.sleep(0.01)


async def test_b23_kill_9_of_a_decode_worker_breaks_its_streams_and_no_others(trio: Stack) -> None:
    victim, epoch = trio.child("decode-0"), trio.worker("decode-0")["epoch"]
    async with httpx.AsyncClient(base_url=trio.url, timeout=3 * HANG_S) as client:
        enough = asyncio.Event()
        clients: list[list[Streamed]] = [[] for _ in range(8)]
        tasks = [
            asyncio.create_task(_stream_until(client, completion(prompt(60, seed=i), 900), all_seen, enough))
            for i, all_seen in enumerate(clients)
        ]
        await _all_streaming(trio, clients)
        victim.kill()
        enough.set()
        await asyncio.gather(*tasks)
    streams = [seen for all_seen in clients for seen in all_seen]
    lost = [seen for seen in streams if seen.error]
    whole = [seen for seen in streams if not seen.error]
    assert lost
    assert whole
    for seen in lost:
        assert seen.error is not None
        assert (seen.error["code"], seen.done, seen.broken) == ("worker_lost", False, True)
    assert all(seen.done and seen.finish == "length" for seen in whole)

    # the other decode worker serves meanwhile, and the dead one comes back as a new epoch
    assert len((await texts(trio.url, [completion(prompt(50, seed=1), 5)]))[0]) > 0
    await asyncio.to_thread(
        trio.wait,
        "decode-0 back in a new epoch, paired again",
        lambda s: (
            any(w["worker_id"] == "decode-0" and w["epoch"] != epoch and w["status"] == "ready" for w in s["workers"])
            and [p["state"] for p in s["pairs"]] == ["usable"] * 2
        ),
        READY_WITHIN_S,
    )
    await asyncio.to_thread(trio.wait_idle)
    together = [completion(prompt(50, seed=i), 5) for i in range(8)]
    assert await texts(trio.url, together) == await texts(trio.url, together, at_once=1)


async def test_b42_kill_9_of_the_only_prefill_worker_and_the_prompt_still_completes(trio: Stack) -> None:
    """The policy `other_then_local` finishes it on the decode worker that had already reserved."""
    prompts = [prompt(900, seed=100 + i) for i in range(12)]
    bodies = [completion(tokens, 4) for tokens in prompts]
    expected = await texts(trio.url, bodies)
    answering = asyncio.create_task(texts(trio.url, [completion(list(reversed(t)), 4) for t in prompts], at_once=12))
    await asyncio.to_thread(trio.wait, "prefilling", lambda s: bool(s["in_flight"].get("prefilling")), HANG_S)
    trio.child("prefill-0").kill()
    assert all(await answering)

    async with httpx.AsyncClient(base_url=trio.url, timeout=3 * HANG_S) as client:
        refused = await client.post("/v1/completions", json=bodies[0])
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_prefill_worker")  # B-40
    assert int(refused.headers["retry-after"]) >= 1
    await asyncio.to_thread(trio.wait_ready)
    assert await texts(trio.url, bodies) == expected


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
async def test_b50_sigterm_of_a_worker_loses_nothing_in_flight(trio: Stack, name: str) -> None:
    await asyncio.to_thread(trio.wait_ready)
    epoch = trio.worker(name)["epoch"]
    bodies = [completion(prompt(300, seed=i), 600) for i in range(6)]  # long enough to be seen while it runs
    expected = await texts(trio.url, bodies)
    answering = asyncio.create_task(texts(trio.url, bodies))
    await asyncio.to_thread(trio.wait, "decoding", lambda s: bool(s["in_flight"].get("decoding")), HANG_S)
    trio.child(name).terminate()
    assert await answering == expected
    await asyncio.to_thread(
        trio.wait,
        f"{name} back",
        lambda s: any(w["worker_id"] == name and w["epoch"] != epoch and w["status"] == "ready" for w in s["workers"]),
        READY_WITHIN_S,
    )
