"""What cannot be understood or said of one sequence leaves the stream of all the others alone."""

import asyncio
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from decode_pool.wire import Malformed, decode_command, encode_frame
from proto import services
from proto.fault import Fault, FaultError, FaultKind
from proto.sampling import Sampling, StructuredKind, StructuredOutput
from proto.tandem.v1 import decode_pb2
from proto.work import Abort, FinishReason, Hello, SequenceDelta, Start, TokenLogprobs
from proto.worker import Role
from tests.decode_pool.inside import simulated
from tests.engine.simulated.hold import before_each_step
from tests.tandem.worker.harness import Served, serve, until, work

CONSTRAINED = Sampling(4, structured=StructuredOutput(StructuredKind.JSON_OBJECT))


def of_another_version(sequence: int) -> bytes:
    """A Start with a kind of structured output that this build has never heard of."""
    start = Start(sequence, "r", replace(work("w", 40, 4), sampling=CONSTRAINED))
    message = decode_pb2.Command.FromString(services.ATTACH.encode_request(start))
    message.start.work.sampling.structured.kind = 99  # type: ignore[assignment]  # no member of the enum, which is the point
    return message.SerializeToString()


def test_a_start_that_cannot_be_understood_is_known_by_its_sequence() -> None:
    malformed = decode_command(of_another_version(7))
    assert isinstance(malformed, Malformed)
    assert (malformed.sequence, malformed.fault.kind) == (7, FaultKind.INVALID_REQUEST)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff"], ids=["no command", "no message"])
def test_what_belongs_to_no_sequence_is_refused(data: bytes) -> None:
    with pytest.raises(FaultError):
        decode_command(data)


def test_commands_come_through() -> None:
    for command in (Hello("g", "e"), Abort(3)):
        assert decode_command(services.ATTACH.encode_request(command)) == command


def test_news_that_cannot_be_sent_become_a_fault_of_their_own_sequence() -> None:
    sound = SequenceDelta((5,), finish=FinishReason.LENGTH)
    broken = SequenceDelta((6,), logprobs=(TokenLogprobs((6,), (-0.1,), (-1,)),))
    told: list[int] = []

    def unspeakable(sequence: int, error: Exception) -> Fault:
        told.append(sequence)
        return Fault(FaultKind.INTERNAL, str(error))

    frame = services.ATTACH.decode_reply(encode_frame(((1, sound), (2, broken)), unspeakable))
    assert frame[0] == (1, sound)
    assert frame[1][0] == 2
    assert frame[1][1].fault is not None
    assert told == [2]


async def test_a_start_that_cannot_be_understood_is_answered_and_the_others_run_on() -> None:
    async with serve(Role.DECODE) as served:
        call = services.ATTACH.encoded.two_way(served.client.channel)()
        await call.write(services.ATTACH.encode(Hello("g1", served.client.info.epoch)))
        sound = Start(1, await served.client.reserve(40, 200), work("a", 40, 200))
        await call.write(services.ATTACH.encode(sound))
        await call.write(of_another_version(2))
        tokens, fault = 0, None
        async for data in call:
            for sequence, delta in services.ATTACH.decode_reply(data):
                if sequence == 1:
                    tokens += len(delta.tokens)
                else:
                    fault = delta.fault
            if tokens == 200:
                break
        assert fault is not None
        assert fault.kind is FaultKind.INVALID_REQUEST
        call.cancel()
        await served.quiet()


async def test_under_a_number_in_use_it_ends_the_stream() -> None:
    """Any answer would be taken for news of the sequence that runs."""
    async with serve(Role.DECODE, profile="toy") as served:
        call = services.ATTACH.encoded.two_way(served.client.channel)()
        await call.write(services.ATTACH.encode(Hello("g1", served.client.info.epoch)))
        sound = Start(1, await served.client.reserve(40, 200), work("a", 40, 200))
        await call.write(services.ATTACH.encode(sound))
        await call.write(of_another_version(1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await served.quiet()


async def test_a_sequence_whose_news_cannot_be_sent_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(Role.DECODE, profile="toy") as served, served.client.attached() as stream:
        together, garbled = asyncio.Event(), asyncio.Event()
        engine = simulated(served)

        async def hold() -> None:
            await together.wait()
            if all(each.generated for each in engine._generations.values()):
                await garbled.wait()

        before_each_step(engine.injector, hold)
        first = await stream.start(await served.client.reserve(40, 60), work("a", 40, 60, seed=1))
        second = await stream.start(await served.client.reserve(40, 60), work("b", 40, 60, seed=2))
        await until(lambda: served.worker.dispatcher.live == 2)
        together.set()
        await stream.stories[first].begun.wait()
        await stream.stories[second].begun.wait()
        garble(served, second)
        garbled.set()
        assert (await stream.stories[second].end()).fault is not None
        assert len((await stream.stories[first].end()).tokens) == 60
        await until(lambda: served.worker.decode.sequences == 0)
        await served.quiet()


def garble(served: Served, sequence: int) -> None:
    """From now on the engine gives tokens of that sequence that are no token ids."""
    attachment = served.worker.decode._attachments[0]
    put = attachment.outbox.put
    attachment.outbox.put = lambda frame: put(  # type: ignore[method-assign]  # replaced for the test
        tuple((number, replace(delta, tokens=(-1,)) if number == sequence else delta) for number, delta in frame)
    )
