"""The real engine behind `tandem up`: the KV really moves, and the answers are the colocated ones."""

import httpx
import pytest

from tests.e2e.answers import complete, completion, prompt, stream, texts
from tests.e2e.stack import Stack, colocated_gateway
from tests.models import TINY_CONTEXT
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ANSWER_TOKENS = 12
#: On and around the CPU engine's block boundaries, the shortest, and the longest that leaves room for the answer.
LENGTHS = (
    1,
    2,
    3,
    17,
    63,
    64,
    127,
    128,
    129,
    130,
    255,
    256,
    257,
    383,
    384,
    385,
    512,
    640,
    TINY_CONTEXT - ANSWER_TOKENS,
)


async def test_b09_b63_every_prompt_is_handed_off_and_reads_as_colocated(pair: Stack) -> None:
    """60 prompts through the whole stack: as many hand-offs as requests, bytes moved, no failures, equal texts."""
    bodies = [
        completion(prompt(length, seed=1000 * round_ + length), ANSWER_TOKENS)
        for round_ in range(4)
        for length in LENGTHS[: 19 if round_ == 0 else 14]
    ]
    assert len(bodies) >= 60
    before = pair.settled_transfers()
    bytes_before = pair.bytes_moved()
    answers = await texts(pair.url, bodies)
    pair.wait_transfers(before + len(bodies))
    after = pair.pairs()[0]
    with colocated_gateway(pair, "decode-0") as reference_url:
        # With a salt of its own: otherwise the reference would read the very blocks that were handed over.
        expected = await texts(reference_url, [body | {"cache_salt": "reference"} for body in bodies])

    assert answers == expected
    assert after["bytes"] > bytes_before
    assert after["failures"] == 0
    prefill = pair.worker("prefill-0")
    assert (prefill["tickets_expired"], prefill["failed_notifications"]) == (0, 0)


async def test_b01_b15_usage_logprobs_and_path_of_a_handed_off_answer(pair: Stack) -> None:
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        reply = await client.post("/v1/completions", json=completion(prompt(200, seed=5), 7, logprobs=2))
        answer = reply.json()
    assert reply.headers["x-tandem-path"] == "remote"
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["usage"]["prompt_tokens"] == 200
    assert len(answer["choices"][0]["logprobs"]["token_logprobs"]) == 7


async def test_b11_cached_tokens_are_the_prefill_workers(pair: Stack) -> None:
    """The decode engine sees the whole prompt as cached after a pull; the client must not."""
    body = completion(prompt(300, seed=77), 2)
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        first = (await complete(client, body))["usage"]["prompt_tokens_details"]["cached_tokens"]
        second = (await complete(client, body))["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first == 0
    assert second == 256  # the full blocks of 300 tokens


async def test_b06_three_answers_of_one_prompt_are_one_hand_off(pair: Stack) -> None:
    before = pair.settled_transfers()
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        answer = await complete(client, completion(prompt(200, seed=6), 5, n=3))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in answer["choices"]}) == 1  # greedy
    pair.wait_transfers(before + 1)


async def test_b05_each_prompt_of_a_list_is_its_own_hand_off(pair: Stack) -> None:
    prompts = [prompt(150, seed=8), prompt(70, seed=9)]
    before = pair.settled_transfers()
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        both = await complete(client, completion(prompts[0], 6) | {"prompt": prompts})
        alone = [(await complete(client, completion(tokens, 6)))["choices"][0]["text"] for tokens in prompts]
    assert [choice["text"] for choice in both["choices"]] == alone
    pair.wait_transfers(before + 4)


async def test_b16_tokens_arrive_while_the_engine_still_works(pair: Stack) -> None:
    async with httpx.AsyncClient(base_url=pair.url, timeout=3 * HANG_S) as client:
        seen = await stream(client, completion(prompt(40, seed=10), 40))
    assert seen.done
    assert seen.finish == "length"
    assert seen.chunks > 10


def test_an_idle_stack_uses_little_of_a_core(pair: Stack) -> None:
    """The NIXL progress thread of each engine would spin a whole core if nobody slowed it."""
    import time

    processes = [pair.supervisor, *pair.supervisor.children(recursive=True)]
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    time.sleep(10)
    used = sum(sum(process.cpu_times()[:2]) for process in processes) - before
    assert used / 10 < 0.2


def test_every_engine_may_use_every_core(pair: Stack) -> None:
    """The stock connector binds the computing thread to the last core, so that all engines would share it."""
    engines = [p for p in pair.supervisor.children(recursive=True) if "EngineCore" in p.name()]
    assert len(engines) == 2
    assert {tuple(p.cpu_affinity()) for p in engines} == {tuple(pair.supervisor.cpu_affinity())}
