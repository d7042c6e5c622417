"""The real engine keeps the steps that it is told while it runs, and the texts are the same."""

import asyncio

import grpc.aio
import pytest

from proto import services
from proto.channel import open_channel
from proto.worker import StepLimit, StepReport, StepTotals
from tests.e2e.answers import completion, prompt, texts
from tests.e2e.stack import Stack, colocated_gateway
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

WORKER = "colocated-1"
#: Of a step, without a limit.
MOST = 256
PROMPTS = [prompt(400, seed) for seed in (1, 2)]
CHUNK = 48


async def say(
    channel: grpc.aio.Channel, tokens: int, chunk_tokens: int, lease_s: float = 600.0, gateway: str = "test"
) -> StepReport:
    limit = StepLimit(gateway, tokens, chunk_tokens, lease_s)
    return await services.LIMIT_STEP.ask(channel, limit, HANG_S)


async def test_chunks_of_two_prompts_get_smaller_and_larger_again(both: Stack) -> None:
    with colocated_gateway(both, WORKER) as url:
        async with open_channel(both.worker(WORKER)["address"]) as channel:

            async def run(salt: str) -> tuple[list[str], float]:
                """Two prompts at once: their texts, and the prompt tokens of a step."""
                before = (await say_again()).totals
                answers = await texts(url, [completion(each, 8, cache_salt=salt) for each in PROMPTS])
                after = (await say_again()).totals.since(before)
                assert (
                    after.chunk_tokens >= sum(map(len, PROMPTS)) - MOST
                )  # the first step after a pause is not counted
                return answers, mean(after)

            bounds = 0, 0

            async def say_again() -> StepReport:
                """The engine's sums come with its next step's news: a moment after the answers'."""
                await asyncio.sleep(0.5)
                return await say(channel, *bounds)

            assert (await say(channel, *bounds)).most_step_tokens == MOST
            expected, at_first = await run("whole")
            bounds = 2 * CHUNK, CHUNK
            await say(channel, *bounds)
            bounded, small = await run("bounded")
            bounds = 10**6, 10**6
            await say(channel, *bounds)
            afterwards, large = await run("whole again")
            bounds = 0, 0
            await say(channel, CHUNK, CHUNK, lease_s=0.1, gateway="gone")
            ended, as_before = await run("ended")

    assert bounded == afterwards == ended == expected
    assert small <= 2 * CHUNK
    for each in (at_first, large, as_before):
        assert 2 * CHUNK < each <= MOST


def mean(totals: StepTotals) -> float:
    return totals.chunk_tokens / totals.chunk_steps
