"""Prefill on one rank, decode on two: the KV is split on the way, and the answers stay the same."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.answers import completion, prompt, stream, texts
from tests.e2e.stack import Stack, colocated_gateway, up
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def split(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with up(
        tmp_path_factory.mktemp("split"),
        *("--model", str(tiny_model), "--prefill", "1", "--decode", "1", "--decode-tp", "2", "--kv-cache-gib", "0.25"),
        *("--set", "gateway.routing.local_prefill_below_tokens=0"),
    ) as stack:
        yield stack


async def test_b64_tp1_to_tp2_reads_as_colocated(split: Stack) -> None:
    bodies = [completion(prompt(length, seed=length), 8) for length in (1, 64, 127, 128, 129, 256, 300, 513)]
    answers = await texts(split.url, bodies)
    await asyncio.to_thread(split.wait_transfers, len(bodies))
    with colocated_gateway(split, "decode-0") as reference_url:
        # a salt of its own: the reference must not find the blocks that were handed over
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])
    assert answers == expected
    pair = split.pairs()[0]
    assert (pair["failures"], pair["state"]) == (0, "usable")
    assert pair["bytes"] > 0


async def test_b50_sigterm_of_the_whole_lets_running_answers_end(split: Stack) -> None:
    """The last test of this stack: afterwards it is gone."""
    async with httpx.AsyncClient(base_url=split.url, timeout=3 * HANG_S) as client:
        answering = asyncio.create_task(stream(client, completion(prompt(40, seed=3), 200)))
        await asyncio.to_thread(split.wait, "decoding", lambda s: bool(s["in_flight"].get("decoding")), 20)
        split.supervisor.send_signal(signal.SIGTERM)
        seen = await answering
    assert (seen.done, seen.finish, seen.error) == (True, "length", None)
    await asyncio.to_thread(split.supervisor.wait, 60)
