"""Admission by forecast on the real engine, with KV for a few answers only."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.answers import completion, prompt, texts
from tests.e2e.stack import PATIENT, Stack, another_gateway, up
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

#: Nobody declares a limit, so every answer grows to the window. The prompt and 16 tokens fit two blocks of 128, so that
#: twice as many are believed to fit as do.
WINDOW, PROMPT = 512, 230


@pytest.fixture(scope="module")
def tight(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A gateway that believes in 16 tokens of growth, which is next to no control, before KV for four answers."""
    with up(
        tmp_path_factory.mktemp("policy"),
        *("--model", str(tiny_model), "--colocated", "1", "--kv-cache-gib", "0.008"),
        *("--max-model-len", str(WINDOW)),
        *("--set", "gateway.admission.default_output_tokens=16", "--set", "gateway.policy.rule=declared"),
        *(part for each in PATIENT for part in ("--set", each)),
    ) as stack:
        yield stack


def preemptions(stack: Stack) -> int:
    time.sleep(2.0)  # counters come with the next state
    return int(stack.worker("colocated-0")["preemptions"])


async def test_the_forecast_takes_preemptions_from_many_to_next_to_none_at_equal_load(tight: Stack) -> None:
    worker = tight.worker("colocated-0")
    fits = (worker["blocks_total"] * worker["block_size_tokens"]) // WINDOW
    assert 2 <= fits <= 8, worker
    bodies = [completion(prompt(PROMPT, seed=900 + number), 1) for number in range(2 * fits + 2)]
    for body in bodies:
        del body["max_tokens"]
    alone = await texts(tight.url, bodies[:1])
    before = await asyncio.to_thread(preemptions, tight)
    uncontrolled = await texts(tight.url, bodies, at_once=len(bodies))
    middle = await asyncio.to_thread(preemptions, tight)
    learn_quickly = "gateway.policy.lengths.shrink_observations=1"
    settings = ("gateway.policy.rule=forecast", learn_quickly, *PATIENT)
    with another_gateway(tight, ("colocated-0",), *settings) as gateway:
        fresh = [body | {"cache_salt": "forecast"} for body in bodies]
        await texts(gateway.url, fresh[:fits], at_once=2)  # a few answers to learn from
        learnt = await asyncio.to_thread(preemptions, tight)
        controlled = await texts(gateway.url, fresh, at_once=len(fresh))
        after = await asyncio.to_thread(preemptions, tight)
        estimates = (await asyncio.to_thread(gateway.status))["policy"]["lengths"]
        assert estimates[0]["requests"] == fits + len(bodies)
    assert uncontrolled[:1] == alone
    assert controlled == uncontrolled
    assert middle - before >= fits, "the load should not fit"
    assert after - learnt <= (middle - before) // 10, (before, middle, learnt, after)


async def test_what_could_never_fit_is_refused_at_once_while_others_go_on(tight: Stack) -> None:
    worker = tight.worker("colocated-0")
    with another_gateway(tight, ("colocated-0",), "gateway.admission.max_choices=64") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=3 * HANG_S) as client:
            going = asyncio.create_task(client.post("/v1/completions", json=completion(prompt(100, seed=1), 380)))
            await asyncio.to_thread(tight.wait, "work", lambda s: s["workers"][0]["running"] > 0, HANG_S)
            never = completion(prompt(100, seed=2), 400, n=2 + worker["blocks_total"] // 4)
            for _ in range(5):
                reply = await client.post("/v1/completions", json=never)
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (400, "kv_capacity"), reply.text
                assert error["numbers"]["blocks_needed"] > error["numbers"]["blocks_total"]
                assert error["policy"] == reply.headers["x-tandem-policy"]
            assert not going.done(), "they were refused without waiting for it"
            assert (await going).status_code == 200
