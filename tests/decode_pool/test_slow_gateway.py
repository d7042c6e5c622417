"""A gateway that stops reading for a while gets everything afterwards, and costs nobody else anything."""

import asyncio

import pytest

from proto import services
from proto.work import Hello
from proto.worker import Role
from tests.tandem.worker.harness import Stream, serve, until, work

SEQUENCES, TOKENS = 64, 1500


@pytest.mark.slow
async def test_steps_are_merged_while_a_gateway_does_not_read_and_no_token_is_lost() -> None:
    async with serve(Role.DECODE, profile="instant", kv_blocks=20_000) as served:
        call = services.ATTACH.two_way(served.client.channel)()
        slow = Stream(call)
        await call.write(Hello("slow", served.client.info.epoch))
        served.client.gateway_id = "slow"
        for number in range(SEQUENCES):
            reservation = await served.client.reserve(20, TOKENS)
            await slow.start(reservation, work(f"r{number}", 20, TOKENS, seed=number))
        (attachment,) = served.worker.decode._attachments
        await until(lambda: not attachment.running)
        # All of it was computed although nothing was read; what waits is a few messages, not one a step.
        assert attachment.outbox.merged_steps > 100
        assert len(attachment.outbox) <= 33
        reader = asyncio.create_task(slow.read())
        stories = await asyncio.gather(*(story.end() for story in slow.stories.values()))
        assert [len(story.tokens) for story in stories] == [TOKENS] * SEQUENCES
        assert len(slow.frames) < served.worker.dispatcher.frames
        call.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        served.client.gateway_id = "fast"
        async with served.client.attached() as fast:
            again = await fast.start(await served.client.reserve(20, TOKENS), work("r0", 20, 50))
            assert (await fast.stories[again].end()).tokens == stories[0].tokens[:50]
        await served.quiet()
