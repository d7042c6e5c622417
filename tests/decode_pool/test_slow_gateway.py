"""A gateway that stops reading for a while gets everything afterwards, and costs nobody else anything."""

import asyncio

import pytest

from decode_pool.outbox import DEFAULT_DEPTH
from proto import services
from proto.channel import READ_AHEAD_BYTES
from proto.work import Hello
from proto.worker import Role
from tests.tandem.worker.harness import Stream, serve, until, work

SEQUENCES, TOKENS = 64, 1500
#: Of one sequence in one frame, at least.
BYTES_OF_NEWS = 6


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
        assert len(attachment.outbox) <= DEFAULT_DEPTH + 1
        # And of what had been sent before the line was full, gRPC keeps some 16 KB, not what the line could hold.
        sent = served.worker.dispatcher.frames - attachment.outbox.merged_steps - len(attachment.outbox)
        assert sent * SEQUENCES * BYTES_OF_NEWS < 6 * READ_AHEAD_BYTES
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
