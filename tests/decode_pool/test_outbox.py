"""A slow gateway gets fewer, larger frames; no token is lost, doubled or reordered."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from decode_pool.outbox import Outbox
from proto.fault import Fault, FaultKind
from proto.work import FinishReason, Frame, SequenceDelta, TokenLogprobs


async def drain(outbox: Outbox) -> list[Frame]:
    outbox.close()
    return [frame async for frame in outbox.frames()]


async def test_a_gateway_that_keeps_up_gets_one_frame_a_step() -> None:
    outbox = Outbox(depth=4)
    reader = asyncio.create_task(_collect(outbox))
    for step in range(20):
        outbox.put(((1, SequenceDelta((step,))), (2, SequenceDelta((step,)))))
        await asyncio.sleep(0)
    outbox.close()
    frames = await reader
    assert len(frames) == 20
    assert all(len(frame) == 2 for frame in frames)
    assert outbox.merged_steps == 0


async def _collect(outbox: Outbox) -> list[Frame]:
    return [frame async for frame in outbox.frames()]


async def test_a_gateway_that_does_not_read_never_makes_the_outbox_deeper() -> None:
    outbox = Outbox(depth=4)
    for step in range(10_000):
        outbox.put(((1, SequenceDelta((step,))),))
        assert len(outbox) <= 5
    frames = await drain(outbox)
    assert len(frames) == 5
    assert [token for frame in frames for _, delta in frame for token in delta.tokens] == list(range(10_000))


def entry(token: int) -> TokenLogprobs:
    return TokenLogprobs((token,), (-0.5,), (1,))


async def test_a_merged_delta_keeps_the_first_words_and_the_last() -> None:
    outbox = Outbox(depth=0)
    outbox.put(((1, SequenceDelta((5,), (entry(5),), cached_tokens=7, queue_s=0.5, transfer_s=0.25)),))
    outbox.put(((1, SequenceDelta((6,), (entry(6),))),))
    outbox.put(((1, SequenceDelta((7,), (entry(7),), finish=FinishReason.STOP)),))
    assert await drain(outbox) == [
        (
            (
                1,
                SequenceDelta(
                    (5, 6, 7),
                    (entry(5), entry(6), entry(7)),
                    FinishReason.STOP,
                    cached_tokens=7,
                    queue_s=0.5,
                    transfer_s=0.25,
                ),
            ),
        )
    ]


async def test_a_fault_after_tokens_comes_with_the_tokens() -> None:
    outbox, fault = Outbox(depth=0), Fault(FaultKind.ENGINE_DEAD, "gone")
    outbox.put(((1, SequenceDelta((5,))),))
    outbox.put(((1, SequenceDelta((), fault=fault)),))
    assert await drain(outbox) == [((1, SequenceDelta((5,), fault=fault)),)]


async def test_nothing_is_taken_in_after_the_end() -> None:
    outbox = Outbox()
    outbox.close()
    outbox.put(((1, SequenceDelta((5,))),))
    assert await drain(outbox) == []


STEPS = st.lists(st.lists(st.integers(1, 4), unique=True, max_size=4), max_size=30)


@given(steps=STEPS, depth=st.integers(0, 3), reads=st.lists(st.booleans(), min_size=30, max_size=30))
def test_every_sequence_hears_the_same_whatever_was_merged(
    steps: list[list[int]], depth: int, reads: list[bool]
) -> None:
    async def run() -> None:
        outbox, heard, said = Outbox(depth), dict[int, list[int]](), dict[int, list[int]]()
        frames = outbox.frames()

        def hear(frame: Frame) -> None:
            assert len({sequence for sequence, _ in frame}) == len(frame)
            for sequence, delta in frame:
                heard.setdefault(sequence, []).extend(delta.tokens)

        for number, (sequences, read) in enumerate(zip(steps, reads, strict=False)):
            outbox.put(tuple((sequence, SequenceDelta((number,))) for sequence in sequences))
            for sequence in sequences:
                said.setdefault(sequence, []).append(number)
            if read and len(outbox):
                hear(await anext(frames))
        outbox.close()
        async for frame in frames:
            hear(frame)
        assert heard == said

    asyncio.run(run())


async def test_that_a_sequence_stays_is_not_lost_in_a_pile() -> None:
    outbox = Outbox(depth=0)
    outbox.put(((1, SequenceDelta((5,))),))
    outbox.put(((1, SequenceDelta((), stays=True)),))
    outbox.put(((1, SequenceDelta((6,))),))
    assert await drain(outbox) == [((1, SequenceDelta((5, 6), stays=True)),)]
