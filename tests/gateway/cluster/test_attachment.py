"""The stream of one worker: cheap routing by sequence, and loss for all at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.cluster.attachment import Attachment, Call
from gateway.cluster.client import WorkerLostError
from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling
from proto.services import ATTACH
from proto.work import Abort, Command, FinishReason, Frame, Hello, SequenceDelta, Start, Work
from tests.waiting import HANG_S

WORK = Work("w", (1, 2), Sampling(4))


class FakeCall:
    """Stands in for the gRPC stream."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.cancelled = False
        self.unwritable: Exception | None = None
        self.wrote = asyncio.Event()

    async def write(self, command: bytes) -> None:
        await asyncio.sleep(0)
        if self.unwritable is not None:
            raise self.unwritable
        self.sent.append(ATTACH.decode_request(command))
        self.wrote.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (frame := await self.frames.get()) is not None:
            yield ATTACH.encode_reply(frame)

    def cancel(self) -> None:
        self.cancelled = True


class Ear:
    def __init__(self, broken: bool = False) -> None:
        self.heard: list[SequenceDelta] = []
        self.reason = ""
        self.broken = broken

    def feed(self, delta: SequenceDelta) -> None:
        if self.broken:
            raise RuntimeError("a defect")
        self.heard.append(delta)

    def lost(self, reason: str) -> None:
        self.reason = reason


class Stream:
    def __init__(self) -> None:
        self.call = FakeCall()
        self.attachment = Attachment()
        self.task = asyncio.create_task(self.attachment.run(cast(Call, self.call), Hello("g", "e")))

    def start(self, **more: Any) -> tuple[int, Ear]:
        ear = Ear(**more)
        return self.attachment.start("r", WORK, None, ear), ear

    async def frame(self, *deltas: tuple[int, SequenceDelta]) -> None:
        await self.call.frames.put(deltas)
        await asyncio.sleep(0.02)

    async def has_sent(self, command: Command) -> None:
        async with asyncio.timeout(HANG_S):
            while command not in self.call.sent:
                await self.call.wrote.wait()
                self.call.wrote.clear()


async def test_hello_comes_first_whatever_was_started_before() -> None:
    attachment, call = Attachment(), FakeCall()
    attachment.start("r", WORK, None, Ear())
    task = asyncio.create_task(attachment.run(cast(Call, call), Hello("g", "e")))
    await asyncio.sleep(0.05)
    assert call.sent == [Hello("g", "e"), Start(1, "r", WORK, None)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert call.cancelled


async def test_news_go_to_their_sequence() -> None:
    stream = Stream()
    (one, first), (two, second) = stream.start(), stream.start()
    await stream.frame((two, SequenceDelta((5,))), (one, SequenceDelta((6,))), (99, SequenceDelta((7,))))
    assert [delta.tokens for delta in first.heard] == [(6,)]
    assert [delta.tokens for delta in second.heard] == [(5,)]
    stream.task.cancel()


async def test_b32_aborting_is_sent_once_and_silences_the_sequence() -> None:
    stream = Stream()
    number, ear = stream.start()
    stream.attachment.abort(number)
    stream.attachment.abort(number)
    stream.attachment.abort(12345)
    await stream.frame((number, SequenceDelta((5,))))
    assert ear.heard == []
    await stream.has_sent(Abort(number))
    await asyncio.sleep(0.02)
    assert stream.call.sent.count(Abort(number)) == 1
    assert len(stream.attachment) == 0
    stream.task.cancel()


@pytest.mark.parametrize("how", ["end", "close"])
async def test_the_loss_of_the_stream_fails_all_its_sequences_at_once(how: str) -> None:
    stream = Stream()
    ears = [stream.start()[1] for _ in range(3)]
    await asyncio.sleep(0.02)
    if how == "end":
        await stream.call.frames.put(None)
        with pytest.raises(WorkerLostError):
            await stream.task
    else:
        stream.attachment.close("gone")
        stream.task.cancel()
    assert all(ear.reason for ear in ears)
    with pytest.raises(WorkerLostError):
        stream.start()


async def test_one_broken_sequence_does_not_take_down_the_others() -> None:
    stream = Stream()
    (one, broken), (two, sound) = stream.start(broken=True), stream.start()
    await stream.frame((one, SequenceDelta((5,))), (two, SequenceDelta((6,))))
    await stream.frame((one, SequenceDelta((5,))), (two, SequenceDelta((6,))))
    assert broken.reason
    assert len(sound.heard) == 2
    stream.task.cancel()


@pytest.mark.parametrize(
    "work",
    [
        replace(WORK, tokens=(-1,)),
        replace(WORK, request_id="\ud800"),
        replace(WORK, sampling=Sampling(2**32)),
        replace(WORK, cache_salt=cast(str, 7)),
    ],
    ids=["token", "text", "number", "type"],
)
async def test_work_that_cannot_be_put_on_the_wire_fails_alone(work: Work) -> None:
    stream = Stream()
    sound, ear = stream.start()
    unheard = Ear()
    with pytest.raises(FaultError) as caught:
        stream.attachment.start("r", work, None, unheard)
    assert caught.value.fault.kind is FaultKind.INVALID_REQUEST
    other, _ = stream.start()
    await stream.frame((sound, SequenceDelta((5,))))
    assert [delta.tokens for delta in ear.heard] == [(5,)]
    assert [command.sequence for command in stream.call.sent[1:]] == [sound, other]
    assert len(stream.attachment) == 2
    assert not unheard.reason
    assert not stream.task.done()
    stream.task.cancel()


async def test_work_larger_than_a_message_may_be_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would end the stream over it."""
    monkeypatch.setattr("proto.method.MAX_MESSAGE_BYTES", 1000)
    stream = Stream()
    with pytest.raises(FaultError) as caught:
        stream.attachment.start("r", replace(WORK, tokens=tuple(range(2000))), None, Ear())
    assert caught.value.fault.kind is FaultKind.INVALID_REQUEST
    assert caught.value.fault.numbers["limit"] == 1000
    stream.start()
    stream.task.cancel()


async def test_what_a_worker_said_before_it_left_is_read_though_it_takes_no_commands() -> None:
    """A drain is when answers are asked to leave. The worker was done with all of them, and one command came too late."""
    stream = Stream()
    (one, first), (two, second) = stream.start(), stream.start()
    await asyncio.sleep(0.02)
    stream.call.unwritable = asyncio.InvalidStateError("finished")
    assert stream.attachment.hand_over(one)
    await asyncio.sleep(0.02)
    with pytest.raises(WorkerLostError):
        stream.start()
    assert not stream.attachment.hand_over(two)  # nobody hears it, and no place need be kept for it
    assert not stream.task.done()
    await stream.frame((one, SequenceDelta((5,), finish=FinishReason.STOP)))
    await stream.call.frames.put(None)
    with pytest.raises(WorkerLostError):
        await stream.task
    assert [delta.tokens for delta in first.heard] == [(5,)]
    assert not first.reason
    assert second.reason


@pytest.mark.parametrize("error", [RuntimeError("a defect"), asyncio.InvalidStateError("finished")])
async def test_a_stream_that_cannot_be_written_to_any_more_is_lost(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every sequence from then on would wait for its deadline."""
    monkeypatch.setattr("gateway.cluster.attachment.LAST_WORDS_S", 0.05)
    stream = Stream()
    _, ear = stream.start()
    await asyncio.sleep(0.02)
    stream.call.unwritable = error
    _, late = stream.start()
    with pytest.raises(WorkerLostError):
        await asyncio.wait_for(stream.task, HANG_S)
    assert ear.reason == late.reason != ""
    assert stream.call.cancelled
    with pytest.raises(WorkerLostError):
        stream.start()


async def test_news_that_cannot_be_understood_end_their_sequence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proto.convert.decode.FINISH_FROM_PB", {2: FinishReason.LENGTH})
    stream = Stream()
    (one, first), (two, second) = stream.start(), stream.start()
    await stream.frame((one, SequenceDelta((5,), finish=FinishReason.STOP)), (two, SequenceDelta((6,))))
    assert first.heard[0].fault is not None
    assert first.heard[0].fault.kind is FaultKind.INTERNAL
    assert second.heard == [SequenceDelta((6,))]
    stream.task.cancel()
