"""Room is granted, refused with numbers, given back; who has none starts nothing."""

from dataclasses import replace

import pytest

from proto.fault import FaultKind
from proto.reservation import Refusal, RefusalReason, Reservation, ReserveRequest
from proto.work import FinishReason
from proto.worker import Role
from tests.tandem.worker.harness import serve, work


async def test_r14_a_busy_worker_refuses_with_numbers_and_the_engine_sees_nothing() -> None:
    async with serve(Role.DECODE, kv_blocks=10) as served:
        await served.client.reserve(100, 28)
        refusal = await served.client.refusal(30, 3)
        assert (refusal.reason, refusal.blocks_needed) == (RefusalReason.KV_BUSY, 3)
        assert (refusal.blocks_total, refusal.blocks_used, refusal.blocks_reserved) == (10, 0, 8)
        assert (await served.client.refusal(160, 1)).reason is RefusalReason.NEVER_FITS
        assert served.worker.dispatcher.stats().steps == 0


@pytest.mark.parametrize("emergency", [True, False])
async def test_nobody_is_kept_waiting_for_an_answer_that_was_refused_a_place_elsewhere(emergency: bool) -> None:
    """Why ever it was to move, it goes on where it is; of a prompt that was refused the gateway waits, and is left room."""
    async with serve(Role.DECODE, kv_blocks=10) as served, served.client.attached():
        decode, prompt = served.worker.decode, ReserveRequest(served.client.gateway_id, "r2", 30, 3, 60.0)
        await served.client.reserve(100, 28)
        for request, waiting in ((replace(prompt, moves=True, emergency=emergency), 0), (prompt, 1)):
            assert isinstance(await decode.reserve(request), Refusal)
            assert len(decode.refused) == waiting


async def test_a_gateway_goes_on_waiting_when_an_answer_of_its_own_has_moved() -> None:
    """Its prompt still has no place, and would lose its turn to gateways that came later."""
    async with serve(Role.DECODE, kv_blocks=10) as served, served.client.attached():
        decode, prompt = served.worker.decode, ReserveRequest(served.client.gateway_id, "r2", 30, 3, 60.0)
        await served.client.reserve(100, 28)
        assert isinstance(await decode.reserve(prompt), Refusal)
        moves = ReserveRequest(served.client.gateway_id, "r3", 10, 3, 60.0, moves=True)
        assert isinstance(await decode.reserve(moves), Reservation)
        assert len(decode.refused) == 1


async def test_slots_are_refused_when_the_batch_is_full() -> None:
    async with serve(Role.DECODE, max_num_seqs=2) as served:
        await served.client.reserve(10, 5, sequences=2)
        refusal = await served.client.refusal(10, 5)
        assert (refusal.reason, refusal.slots_total, refusal.slots_used) == (RefusalReason.SLOTS_BUSY, 2, 2)


async def test_a_prefill_worker_and_a_draining_one_grant_nothing() -> None:
    async with serve(Role.PREFILL) as served:
        assert (await served.client.refusal(10, 5)).reason is RefusalReason.WRONG_ROLE
        served.worker.duty.role, served.worker.duty.draining = Role.DECODE, True
        assert (await served.client.refusal(10, 5)).reason is RefusalReason.DRAINING


async def test_reservations_are_released_by_name_or_by_request() -> None:
    async with serve(Role.DECODE) as served:
        reservation = await served.client.reserve(40, 8)
        assert await served.client.release_reservation(reservation) is True
        assert await served.client.release_reservation(reservation) is False
        await served.client.try_reserve(40, 8, request_id="lost reply")
        assert await served.client.release_reservation(request_id="lost reply") is True
        await served.quiet()


async def test_an_unused_reservation_ends_without_anybody_asking() -> None:
    async with serve(Role.DECODE) as served:
        await served.client.reserve(40, 8, ttl_s=0.1)
        await served.quiet()


async def test_a_start_without_a_reservation_is_a_fault_of_that_sequence_alone() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        bad = await stream.start("no such", work("r1"))
        good = await stream.start(await served.client.reserve(40, 8), work("r2"))
        fault = (await stream.stories[bad].end()).fault
        assert fault is not None
        assert fault.kind is FaultKind.RESERVATION_UNKNOWN
        assert (await stream.stories[good].end()).finish is FinishReason.LENGTH
        assert served.worker.dispatcher.stats().prompt_tokens == 40
