"""The prefill leg over gRPC: a ticket for every prompt, and nothing left of a caller that goes away."""

import asyncio
from typing import Any

import grpc.aio
import pytest

from proto import services
from proto.fault import Fault, FaultKind
from proto.work import FinishReason, PrefillDone, Work
from proto.worker import Role
from tests.tandem.worker.harness import Served, prompt, serve, until, work

#: 2 ms a step and 64 prompt tokens a step: long prompts take a while.
SLOW: dict[str, Any] = {"max_num_batched_tokens": 64}


async def test_a_prompt_becomes_one_token_and_a_ticket() -> None:
    async with serve(Role.PREFILL) as served:
        done = await served.client.prefill(work("r1", length=40, max_tokens=1))
        assert len(done.tokens) == 1
        assert done.finish is FinishReason.LENGTH
        assert done.ticket is not None
        assert done.ticket.worker_id == served.worker.duty.worker_id
        assert done.ticket.epoch == served.client.info.epoch
        assert (done.ticket.computed_tokens, done.ticket.blocks) == (40, 3)
        assert 0.0 <= done.ticket.age_s < 0.5
        assert done.compute_s > 0.0
        state = await served.client.state()
        assert (state.tickets_held, state.tickets_issued, state.blocks_used) == (1, 1, 3)


async def test_prompt_logprobs_and_cached_tokens_come_from_the_prefill_leg() -> None:
    async with serve(Role.PREFILL) as served:
        first = await served.client.prefill(work("r1", length=64, max_tokens=1, prompt_logprobs=1))
        assert len(first.prompt_logprobs) == 64
        again = await served.client.prefill(work("r2", length=64, max_tokens=1))
        assert again.cached_tokens == 48


async def test_b27_release_frees_the_blocks_at_once_and_twice_is_harmless() -> None:
    async with serve(Role.PREFILL) as served:
        done = await served.client.prefill(work("r1", max_tokens=1))
        assert done.ticket is not None
        assert await served.client.release_ticket(done.ticket) is True
        assert await served.client.release_ticket(done.ticket) is False
        await served.quiet(1.0)
        state = await served.client.state()
        assert (state.tickets_held, state.tickets_released, state.blocks_used) == (0, 1, 0)


async def test_b51_a_release_of_another_epoch_frees_nothing() -> None:
    async with serve(Role.PREFILL) as served:
        done = await served.client.prefill(work("r1", max_tokens=1))
        assert done.ticket is not None
        assert await served.client.release_ticket(done.ticket, epoch="another") is False
        assert served.worker.dispatcher.stats().tickets_held == 1


async def test_b27_a_caller_that_never_saw_the_reply_releases_by_request() -> None:
    async with serve(Role.PREFILL) as served:
        await served.client.prefill(work("r1", max_tokens=1))
        assert await served.client.release_work("r1") is True
        assert await served.client.release_work("r1") is False
        assert await served.client.release_work("never seen") is False
        await served.quiet()


async def test_releasing_by_request_stops_work_that_still_runs() -> None:
    async with serve(Role.PREFILL, **SLOW) as served:
        call = served.client.prefill_stub(work("r1", length=4000, max_tokens=1))
        await until(lambda: served.worker.dispatcher.stats().running == 1)
        assert await served.client.release_work("r1") is True
        reply = await call
        assert isinstance(reply, Fault)
        assert reply.kind is FaultKind.CANCELLED
        await served.quiet()


async def test_b34_a_cancelled_call_stops_the_engine_within_250_ms() -> None:
    async with serve(Role.PREFILL, **SLOW) as served:
        call = served.client.prefill_stub(work("r1", length=8000, max_tokens=1))
        await until(lambda: served.worker.dispatcher.stats().running == 1)
        call.cancel()
        await served.quiet(0.25)


async def test_b34_a_call_cancelled_in_the_queue_leaves_nothing() -> None:
    async with serve(Role.PREFILL, max_num_seqs=1, **SLOW) as served:
        running = served.client.prefill_stub(work("r1", length=8000, max_tokens=1, seed=1))
        await until(lambda: served.worker.dispatcher.stats().running == 1)
        queued = served.client.prefill_stub(work("r2", length=8000, max_tokens=1, seed=2))
        await until(lambda: served.worker.dispatcher.stats().waiting == 1)
        queued.cancel()
        await until(lambda: served.worker.dispatcher.stats().waiting == 0, 0.25)
        assert served.worker.dispatcher.stats().running == 1
        running.cancel()
        await served.quiet(0.25)


async def test_b27_a_caller_that_leaves_at_any_moment_leaves_no_ticket() -> None:
    # A cancel can cross the reply on the wire, and then only the caller knows: it releases by request, as gateways do.
    async with serve(Role.PREFILL) as served:
        for round_ in range(60):
            call = served.client.prefill_stub(work(f"r{round_}", max_tokens=1, seed=round_))
            await asyncio.sleep(0.0002 * round_)
            if call.cancel():
                await served.client.release_work(f"r{round_}")
                continue
            reply = await call
            assert isinstance(reply, PrefillDone)
            assert reply.ticket is not None
            await served.client.release_ticket(reply.ticket)
        await served.quiet(1.0)
        assert len(served.worker.prefill.leases) == 0


@pytest.mark.slow
async def test_an_unread_ticket_expires_and_its_blocks_come_back() -> None:
    async with serve(Role.PREFILL, kv_lease_s=0.3) as served:
        await served.client.prefill(work("r1", max_tokens=1))
        assert served.worker.dispatcher.stats().tickets_held == 1
        await served.quiet()
        await until(lambda: len(served.worker.prefill.leases) == 0)
        assert (await served.client.state()).tickets_expired == 1


async def test_a_decode_worker_refuses_prefill() -> None:
    async with serve(Role.DECODE) as served:
        fault = await served.client.refused(work("r1", max_tokens=1))
        assert fault.kind is FaultKind.WRONG_ROLE
        assert served.worker.dispatcher.stats().prompt_tokens == 0


async def test_a_draining_worker_refuses_prefill() -> None:
    async with serve(Role.PREFILL) as served:
        served.worker.duty.draining = True
        assert (await served.client.refused(work("r1", max_tokens=1))).kind is FaultKind.DRAINING


async def test_b38_a_prompt_beyond_the_window_is_refused_with_the_numbers() -> None:
    async with serve(Role.PREFILL, max_model_len=128) as served:
        fault = await served.client.refused(work("r1", length=128, max_tokens=1))
        assert fault.kind is FaultKind.CONTEXT_LENGTH
        assert fault.numbers == {"prompt_tokens": 128, "max_tokens": 1, "max_model_len": 128}
        assert (await served.client.prefill(work("r2", length=127, max_tokens=1))).ticket is not None


async def test_b55_a_prompt_that_never_fits_is_refused_at_once_and_others_proceed() -> None:
    async with serve(Role.PREFILL, kv_blocks=4) as served:
        fault = await served.client.refused(work("r1", length=65, max_tokens=1))
        assert fault.kind is FaultKind.KV_CAPACITY
        assert fault.numbers == {"prompt_tokens": 65, "blocks_needed": 5, "blocks_total": 4}
        assert (await served.client.prefill(work("r2", length=40, max_tokens=1))).ticket is not None


async def test_an_empty_prompt_is_the_requests_fault() -> None:
    async with serve(Role.PREFILL) as served:
        assert (await served.client.refused(work("r1", length=0, max_tokens=1))).kind is FaultKind.INVALID_REQUEST


async def test_b04_a_leg_that_stops_by_itself_is_a_missing_hand_off_not_a_silent_one() -> None:
    async with serve(Role.PREFILL) as served:
        token = (await served.client.prefill(work("r1", max_tokens=1))).tokens[0]
        await served.client.release_work("r1")
        fault = await served.client.refused(work("r2", max_tokens=1, stop_token_ids=(token,)))
        assert fault.kind is FaultKind.HANDOFF_MISSING
        await served.quiet()


@pytest.mark.parametrize("times", [1, 3])
async def test_the_same_request_may_be_prefilled_again(times: int) -> None:
    async with serve(Role.PREFILL) as served:
        tokens = {(await served.client.prefill(work("same", max_tokens=1))).tokens for _ in range(times)}
        assert len(tokens) == 1
        assert served.worker.dispatcher.stats().tickets_held == times


async def test_many_prompts_at_once_get_their_own_tickets() -> None:
    async with serve(Role.PREFILL) as served:
        done = await asyncio.gather(
            *(served.client.prefill(work(f"r{n}", length=20 + n, max_tokens=1, seed=n)) for n in range(50))
        )
        tickets = [each.ticket for each in done if each.ticket is not None]
        assert len({ticket.ticket_id for ticket in tickets}) == 50
        assert [ticket.computed_tokens for ticket in tickets] == [20 + n for n in range(50)]
        assert prompt(20) != prompt(20, seed=1)
        await asyncio.gather(*(served.client.release_ticket(ticket) for ticket in tickets))
        await served.quiet()


def begun(served: Served, wanted: Work) -> grpc.aio.UnaryStreamCall[Work, PrefillDone | Fault]:
    return services.BEGIN.server_stream(served.client.channel)(wanted)


async def test_a_leg_of_several_tokens_comes_in_parts_and_the_last_has_the_ticket() -> None:
    async with serve(Role.PREFILL) as served:
        parts = [
            part async for part in begun(served, work("r1", length=40, max_tokens=6)) if isinstance(part, PrefillDone)
        ]
        assert [part.finish for part in parts] == [None] * (len(parts) - 1) + [FinishReason.LENGTH]
        assert sum(len(part.tokens) for part in parts) == 6
        assert len(parts) > 2
        assert [part.ticket is None for part in parts] == [True] * (len(parts) - 1) + [False]
        ticket = parts[-1].ticket
        assert ticket is not None
        assert (ticket.computed_tokens, ticket.blocks) == (45, 3)
        whole = await served.client.prefill(work("r2", length=40, max_tokens=6))
        assert whole.tokens == tuple(token for part in parts for token in part.tokens)


async def test_ending_the_stream_early_stops_the_work_and_frees_everything() -> None:
    async with serve(Role.PREFILL) as served:
        call = begun(served, work("r1", length=40, max_tokens=2000))
        await call.read()
        call.cancel()
        await served.quiet(30.0)
        assert served.worker.prefill.in_flight == 0


async def test_a_fault_ends_the_stream() -> None:
    async with serve(Role.PREFILL) as served:
        replies = [reply async for reply in begun(served, work("r1", length=9000, max_tokens=5))]
        assert [reply.kind for reply in replies if isinstance(reply, Fault)] == [FaultKind.CONTEXT_LENGTH]
