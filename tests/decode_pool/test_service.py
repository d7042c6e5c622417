"""Answers over one stream: the same tokens as without a hand-off, and nothing left of whoever goes away."""

import asyncio
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from engine.simulated.faults import Script
from proto import services
from proto.fault import FaultKind
from proto.work import Abort, FinishReason, Hello, WriterLost
from proto.worker import Role
from tests.decode_pool.inside import answer_alone, injector
from tests.engine.simulated.hold import Hold, before_each_step
from tests.tandem.worker.harness import serve, until, work
from tests.waiting import HANG_S


async def test_a_local_answer_has_its_tokens_and_its_end() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(40, 8), work("r1", 40, 8))
        story = await stream.stories[sequence].end()
        assert len(story.tokens) == 8
        assert story.finish is FinishReason.LENGTH
        await served.quiet()


async def test_one_frame_carries_all_the_news_of_one_step() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        together = asyncio.Event()
        before_each_step(injector(served), together.wait)
        for number in range(8):
            await stream.start(await served.client.reserve(40, 30), work(f"r{number}", 40, 30, seed=number))
        await until(lambda: served.worker.dispatcher.live == 8)
        together.set()
        await asyncio.gather(*(story.end() for story in stream.stories.values()))
        assert len(stream.frames) <= served.worker.dispatcher.frames
        assert all(len({sequence for sequence, _ in frame}) == len(frame) for frame in stream.frames)
        full = [frame for frame in stream.frames if len(frame) == 8]
        assert len(full) >= 15  # they run together from the first step on
        assert all(len(delta.tokens) == 1 for frame in full for _, delta in frame)


async def test_frames_of_two_gateways_do_not_mix() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as one, served.client.attached() as two:
        first = await one.start(await served.client.reserve(40, 20), work("r1", 40, 20, seed=1))
        second = await two.start(await served.client.reserve(40, 20), work("r2", 40, 20, seed=2))
        assert first == second == 1  # numbers are the stream's own
        stories = [await stream.stories[1].end() for stream in (one, two)]
        assert stories[0].tokens != stories[1].tokens
        assert [len(story.tokens) for story in stories] == [20, 20]


async def test_a_handed_off_answer_goes_on_as_if_it_had_never_moved() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        for length in (17, 31, 33, 100):
            done = await prefill.client.prefill(work("p", length, max_tokens=1, seed=length))
            reservation = await decode.client.reserve(length, 12)
            carried = work("d", length, 11, seed=length, carried=done.tokens)
            sequence = await stream.start(reservation, carried, done.ticket)
            story = await stream.stories[sequence].end()
            assert story.deltas[0].transfer_s > 0.0
            assert done.tokens + story.tokens == await answer_alone(decode, length, 12, seed=length)
        await decode.quiet()
        await prefill.quiet()
        assert sum(peer.transfers for peer in decode.worker.dispatcher.stats().transfers) == 4


async def test_b31_an_old_ticket_is_refused_before_the_engine_sees_it() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        done = await prefill.client.prefill(work("p", max_tokens=1))
        assert done.ticket is not None
        old = replace(done.ticket, age_s=done.ticket.lease_s - 0.2)  # less than the margin is left
        reservation = await decode.client.reserve(40, 8)
        sequence = await stream.start(reservation, work("d"), old)
        fault = (await stream.stories[sequence].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_EXPIRED
        assert fault.numbers["lease_s"] == done.ticket.lease_s
        assert decode.worker.dispatcher.stats().steps == 0
        # The reservation is still good: the one retry runs under it.
        again = await stream.start(reservation, work("d2"), done.ticket)
        assert (await stream.stories[again].end()).finish is FinishReason.LENGTH
        await decode.quiet()


async def test_a_ticket_at_a_block_boundary_is_refused_before_the_engine_sees_it() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        done = await prefill.client.prefill(work("p", 32, max_tokens=1))
        reservation = await decode.client.reserve(32, 8)
        sequence = await stream.start(reservation, work("d", 32, 7, carried=done.tokens), done.ticket)
        fault = (await stream.stories[sequence].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_BOUNDARY
        assert fault.numbers == {"tokens": 33, "blocks_needed": 3, "blocks_held": 2}
        assert decode.worker.dispatcher.stats().steps == 0


async def test_b51_a_ticket_of_a_writer_that_restarted_is_stale() -> None:
    async with serve(Role.DECODE) as decode, decode.client.attached() as stream:
        async with serve(Role.PREFILL, name="p") as before:
            done = await before.client.prefill(work("p", max_tokens=1))
            assert (await decode.worker.service.warm(before.client.info)).ok
        async with serve(Role.PREFILL, name="p") as after:
            assert (await decode.worker.service.warm(after.client.info)).ok
            sequence = await stream.start(await decode.client.reserve(40, 8), work("d"), done.ticket)
            fault = (await stream.stories[sequence].end()).fault
            assert fault is not None
            assert fault.kind is FaultKind.TICKET_STALE
            fresh = await after.client.prefill(work("p", max_tokens=1))
            sequence = await stream.start(await decode.client.reserve(40, 8), work("d"), fresh.ticket)
            assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH


async def test_a_stream_that_believes_in_another_epoch_is_refused() -> None:
    async with serve(Role.DECODE) as served, served.client.attached(epoch="before") as stream:
        await until(lambda: stream.error is not None)
        assert stream.error is not None
        assert stream.error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert served.client.info.epoch in (stream.error.details() or "")
        await until(lambda: served.worker.decode.attached == 0)


@pytest.mark.parametrize("first", [Abort(1), Hello("g1", "")])
async def test_a_stream_that_does_not_begin_with_a_proper_hello_is_refused(first: Abort | Hello) -> None:
    async with serve(Role.DECODE) as served:
        call = services.ATTACH.two_way(served.client.channel)()
        await call.write(first)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION}
        await until(lambda: served.worker.decode.attached == 0)


async def test_a_second_hello_ends_the_stream_and_what_ran_on_it() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        await stream.start(await served.client.reserve(40, 4000), work("r1", 40, 4000))
        await stream.stories[1].begun.wait()
        await stream.call.write(Hello("g1", served.client.info.epoch))
        await until(lambda: stream.error is not None)
        assert stream.error is not None
        assert stream.error.code() is grpc.StatusCode.INVALID_ARGUMENT
        await served.quiet()


async def test_a_worker_that_closes_ends_its_streams_without_an_error() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        await stream.start(await served.client.reserve(40, 8), work("r1"))
        await stream.stories[1].end()
        await served.worker.decode.close()
        assert await asyncio.wait_for(stream.call.code(), HANG_S) is grpc.StatusCode.OK
        assert stream.error is None
        await until(lambda: served.worker.decode.attached == 0)


async def test_b32_abort_of_anything_that_does_not_run_is_a_no_op() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        await stream.abort(99)
        sequence = await stream.start(await served.client.reserve(40, 8), work("r1"))
        await stream.stories[sequence].end()
        await stream.abort(sequence)
        await stream.abort(sequence)
        again = await stream.start(await served.client.reserve(40, 8), work("r2"))
        assert (await stream.stories[again].end()).finish is FinishReason.LENGTH


async def test_b34_an_abort_while_decoding_frees_everything_within_250_ms() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(40, 4000), work("r1", 40, 4000))
        await stream.stories[sequence].begun.wait()
        await stream.abort(sequence)
        await served.quiet(0.25)
        made = served.worker.dispatcher.stats().generated_tokens
        await asyncio.sleep(0.05)
        assert served.worker.dispatcher.stats().generated_tokens == made < 4000


async def test_b37_a_gateway_that_vanishes_leaves_nothing_behind() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE, worker={"abandon_s": 0.1}) as decode:
        async with decode.client.attached() as stream:
            for number in range(6):
                done = await prefill.client.prefill(work(f"p{number}", max_tokens=1, seed=number))
                reservation = await decode.client.reserve(40, 3000)
                await stream.start(reservation, work(f"d{number}", 40, 3000, seed=number), done.ticket)
            await stream.stories[1].begun.wait()
            await decode.client.reserve(40, 8)  # never used
        await decode.quiet(1.5)
        await prefill.quiet(1.0)
        assert decode.worker.decode.attached == 0


async def test_the_survivors_of_another_gateways_loss_go_on() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stays:
        kept = await stays.start(await served.client.reserve(40, 200), work("r1", 40, 200, seed=1))
        async with served.client.attached() as leaves:
            await leaves.start(await served.client.reserve(40, 4000), work("r2", 40, 4000, seed=2))
            await leaves.stories[1].begun.wait()
        story = await stays.stories[kept].end()
        assert len(story.tokens) == 200
        await served.quiet()


async def test_pulls_are_bounded_and_the_wait_counts_as_queueing() -> None:
    async with (
        serve(Role.PREFILL) as prefill,
        serve(Role.DECODE, worker={"max_pulls": 1}) as decode,
        decode.client.attached() as stream,
    ):
        injector(decode).use(Script.model_validate({"faults": [{"kind": "hang", "phase": "transfer"}]}))
        pulls = Hold(injector(decode))
        for number in range(4):
            done = await prefill.client.prefill(work(f"p{number}", 200, max_tokens=1, seed=number))
            await stream.start(
                await decode.client.reserve(200, 8), work(f"d{number}", 200, 2, seed=number), done.ticket
            )
        await until(lambda: decode.worker.decode.gate.waiting == 3)
        assert decode.worker.decode.gate.under_way == 1
        await stream.abort(3)
        await asyncio.sleep(0.15)
        pulls.let_go()
        stories = [await stream.stories[sequence].end() for sequence in (1, 2, 4)]
        first, *others = [story.deltas[0].queue_s for story in stories]
        assert all(max(first, 0.1) < wait for wait in others)
        await decode.quiet()
        # The one that was aborted before its turn gave its ticket back, too.
        await prefill.quiet(1.0)


async def test_a_ticket_that_is_no_good_is_refused_without_waiting_for_its_turn() -> None:
    async with (
        serve(Role.PREFILL) as prefill,
        serve(Role.DECODE, worker={"max_pulls": 1}) as decode,
        decode.client.attached() as stream,
    ):
        injector(decode).use(Script.model_validate({"faults": [{"kind": "hang", "phase": "transfer"}]}))
        pulls = Hold(injector(decode))
        done = [await prefill.client.prefill(work(f"p{n}", 200, max_tokens=1, seed=n)) for n in range(2)]
        await stream.start(await decode.client.reserve(200, 8), work("d0", 200, 2, seed=0), done[0].ticket)
        await until(lambda: decode.worker.decode.gate.under_way == 1)
        assert done[1].ticket is not None
        old = replace(done[1].ticket, age_s=done[1].ticket.lease_s)
        sequence = await stream.start(await decode.client.reserve(200, 8), work("d1", 200, 2, seed=1), old)
        fault = (await stream.stories[sequence].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_EXPIRED
        assert decode.worker.decode.gate.under_way == 1  # the other one still pulls
        pulls.let_go()


@pytest.mark.slow
async def test_b31_a_ticket_that_ages_while_it_waits_for_its_turn_is_refused_then() -> None:
    async with (
        serve(Role.PREFILL, link="tcp", kv_lease_s=1.0) as prefill,
        serve(Role.DECODE, worker={"max_pulls": 1, "lease_margin_s": 0.2}, link="tcp", speedup=0.004) as decode,
        decode.client.attached() as stream,
    ):
        for number in range(2):
            done = await prefill.client.prefill(work(f"p{number}", 200, max_tokens=1, seed=number))
            reservation = await decode.client.reserve(200, 8)
            await stream.start(reservation, work(f"d{number}", 200, 2, seed=number), done.ticket)
        fault = (await stream.stories[2].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_EXPIRED
        assert fault.numbers["age_s"] > 0.8


async def test_b06_several_answers_run_under_one_reservation() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        reservation = await served.client.reserve(40, 24, sequences=3)
        for number in range(3):
            await stream.start(reservation, work(f"r{number}", 40, 8))
        stories = await asyncio.gather(*(story.end() for story in stream.stories.values()))
        assert [story.finish for story in stories] == [FinishReason.LENGTH] * 3
        extra = await stream.start(reservation, work("r4", 40, 8))
        fault = (await stream.stories[extra].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.RESERVATION_UNKNOWN
        await served.quiet()


async def test_b57_growth_beyond_the_reservation_is_charged() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(40, 8), work("r1", 40, 4000))
        await until(lambda: len(stream.stories[sequence].tokens) > 100)
        assert served.worker.decode.ledger.reserved_blocks >= (40 + 100) // 16
        await stream.abort(sequence)
        await served.quiet()


async def test_a_prompt_beyond_the_window_is_the_requests_fault() -> None:
    async with serve(Role.DECODE, max_model_len=64) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(40, 8), work("r1", 64))
        fault = (await stream.stories[sequence].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.CONTEXT_LENGTH


async def test_a_pull_whose_writer_is_lost_is_answered_and_its_reservation_starts_again() -> None:
    script = Script.model_validate({"faults": [{"kind": "hang", "phase": "transfer", "times": 1}]})
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        injector(decode).use(script)
        pull = Hold(injector(decode))
        done = await prefill.client.prefill(work("p", max_tokens=1))
        reservation = await decode.client.reserve(40, 8)
        pulling = await stream.start(reservation, work("d"), done.ticket)
        await pull.begun.wait()
        await stream.send(WriterLost(pulling, "p"))
        fault = (await stream.stories[pulling].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.KV_LOAD_FAILED
        again = await stream.start(reservation, work("d"))
        assert (await stream.stories[again].end()).finish is FinishReason.LENGTH
        pull.let_go()
        await decode.quiet()


async def test_a_lost_writer_does_not_disturb_who_has_its_kv_or_never_wanted_it() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE, profile="toy") as decode:
        async with decode.client.attached() as stream:
            local = await stream.start(await decode.client.reserve(40, 8), work("l"))
            await stream.send(WriterLost(local, "p"))
            await stream.send(WriterLost(99, "p"))
            assert (await stream.stories[local].end()).finish is FinishReason.LENGTH
            done = await prefill.client.prefill(work("p", max_tokens=1))
            handed = await stream.start(await decode.client.reserve(40, 60), work("d", 40, 60), done.ticket)
            await stream.stories[handed].begun.wait()
            await stream.send(WriterLost(handed, "p"))
            assert len((await stream.stories[handed].end()).tokens) == 60
        await decode.quiet()
