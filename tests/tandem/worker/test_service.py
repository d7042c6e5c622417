"""Worker: describe, watch, drain, role switch, warm, standard services, and the counters."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from proto import services
from proto.channel import open_channel
from proto.fault import FaultKind
from proto.reservation import RefusalReason
from proto.work import FinishReason
from proto.worker import Role, RoleChange, WorkerState
from tandem.worker.state import StateKeeper
from tests.proto import certificates
from tests.tandem.worker.harness import Served, serve, until, work
from tests.waiting import HANG_S


def watch(served: Served, interval_s: float) -> AsyncIterator[WorkerState]:
    return aiter(services.WATCH.server_stream(served.client.channel)(interval_s))


async def role(served: Served, wanted: Role) -> Role:
    return (await services.SET_ROLE.unary(served.client.channel)(RoleChange(wanted), timeout=HANG_S)).role


async def drain(served: Served, resume: bool = False) -> int:
    return await services.DRAIN.unary(served.client.channel)(resume, timeout=HANG_S)


async def serving_status(served: Served, service: str) -> bool:
    stub = health_pb2_grpc.HealthStub(served.client.channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=HANG_S)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


async def test_describe_tells_what_the_engine_is_and_where_it_sits() -> None:
    async with serve(Role.DECODE, name="w7", worker={"node": "n1", "rack": "r1", "numa": "0"}, kv_blocks=77) as served:
        info = await services.DESCRIBE.unary(served.client.channel)(None, timeout=HANG_S)
        assert info == served.worker.info
        assert (info.worker_id, info.role, info.blocks_total) == ("w7", Role.DECODE, 77)
        assert (info.topology.node, info.topology.rack, info.topology.numa) == ("n1", "r1", "0")


async def test_a_restart_is_a_new_epoch() -> None:
    async with serve(name="w") as served:
        before = served.client.info.epoch
    async with serve(name="w") as served:
        assert served.client.info.epoch != before


async def test_watch_sends_a_snapshot_at_once_and_then_every_interval() -> None:
    async with serve() as served:
        states = watch(served, 0.05)
        began = asyncio.get_running_loop().time()
        seen = [await asyncio.wait_for(anext(states), HANG_S) for _ in range(4)]
        assert asyncio.get_running_loop().time() - began > 0.1
        assert [state.sequence for state in seen] == sorted({state.sequence for state in seen})
        assert seen[0].healthy
        assert seen[0].epoch == served.client.info.epoch


async def test_watch_tells_of_a_drain_without_waiting_for_the_interval() -> None:
    async with serve() as served:
        states = watch(served, 10 * HANG_S)
        assert not (await anext(states)).draining
        await drain(served)
        assert (await asyncio.wait_for(anext(states), HANG_S)).draining


async def test_watch_tells_a_gateway_that_was_refused_of_room_without_waiting_for_the_interval() -> None:
    async with serve(Role.DECODE, kv_blocks=8) as served, served.client.attached():
        states = watch(served, 10 * HANG_S)
        await anext(states)
        held = await served.client.reserve(40, 40)
        await served.client.refusal(40, 40)
        await served.client.release_reservation(held)
        assert (await asyncio.wait_for(anext(states), HANG_S)).blocks_reserved == 0


async def test_a_gateway_without_a_stream_is_not_remembered_as_refused() -> None:
    """Nobody would ever say that it has left."""
    async with serve(Role.DECODE, kv_blocks=8) as served:
        await served.client.reserve(40, 40)
        await served.client.refusal(40, 40)
        assert len(served.worker.decode.refused) == 0


async def test_nobody_is_told_of_room_that_nobody_was_refused() -> None:
    async with serve(Role.DECODE, kv_blocks=8) as served:
        states = watch(served, 10 * HANG_S)
        await anext(states)
        await served.client.release_reservation(await served.client.reserve(40, 40))
        await served.client.refusal(40, 4000)  # would never fit
        await served.client.release_reservation(await served.client.reserve(40, 40))
        assert served.worker.service._telling is None


async def test_r48_occupancy_matches_the_engine_and_returns_to_zero() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(160, 1000), work("r1", 160, 4000))
        await until(lambda: len(stream.stories[sequence].tokens) > 20)
        state = await served.client.state()
        stats = served.worker.dispatcher.stats()
        assert 0 <= stats.blocks_used - state.blocks_used <= 1
        assert state.blocks_reserved == 73  # 1,160 tokens, far more than there are by now on any machine
        assert (state.reservations, state.running, state.sequences, state.attached_gateways) == (1, 1, 1, 1)
        assert state.prompt_tokens == 160
        assert state.generated_tokens > 20
        assert state.steps > 20
        assert state.step_time_s > 0.0
        await stream.abort(sequence)
        await served.quiet()
        state = await served.client.state()
        assert (state.blocks_used, state.blocks_reserved, state.reservations, state.running, state.sequences) == (
            (0,) * 5
        )


async def test_a_draining_worker_finishes_what_runs_and_takes_nothing_new() -> None:
    async with serve(Role.BOTH) as served, served.client.attached() as stream:
        reservation = await served.client.reserve(40, 200, sequences=2)
        running = await stream.start(reservation, work("r1", 40, 100))
        await stream.stories[running].begun.wait()
        assert await drain(served) >= 1
        assert (await served.client.refusal(40, 8)).reason is RefusalReason.DRAINING
        assert (await served.client.refused(work("p", max_tokens=1))).kind is FaultKind.DRAINING
        # What was promised before the drain is kept.
        promised = await stream.start(reservation, work("r2", 40, 8))
        for sequence in (running, promised):
            assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH
        await asyncio.wait_for(served.worker.drained(), HANG_S)
        await drain(served, resume=True)
        await served.client.reserve(40, 8)


async def test_b50_a_drain_waits_for_kv_that_a_reader_has_not_read() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        done = await prefill.client.prefill(work("p", max_tokens=1))
        assert await drain(prefill) == 1
        drained = asyncio.create_task(prefill.worker.drained())
        await asyncio.sleep(0.1)
        assert not drained.done()
        sequence = await stream.start(await decode.client.reserve(40, 8), work("d"), done.ticket)
        assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH
        await asyncio.wait_for(drained, HANG_S)


async def test_b50_a_drain_waits_for_what_was_promised_and_has_not_begun() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        reservation = await served.client.reserve(40, 8)
        assert await drain(served) == 1
        drained = asyncio.create_task(served.worker.drained())
        await asyncio.sleep(0.1)
        assert not drained.done()
        sequence = await stream.start(reservation, work("r1"))
        assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH
        await asyncio.wait_for(drained, HANG_S)


async def test_a_role_can_change_while_work_runs() -> None:
    async with serve(Role.DECODE) as served, served.client.attached() as stream:
        reservation = await served.client.reserve(40, 100, sequences=2)
        sequence = await stream.start(reservation, work("r1", 40, 50))
        assert await role(served, Role.PREFILL) is Role.DECODE
        assert (await services.DESCRIBE.unary(served.client.channel)(None)).role is Role.PREFILL
        assert (await served.client.refusal(40, 8)).reason is RefusalReason.WRONG_ROLE
        done = await served.client.prefill(work("p", max_tokens=1, seed=2))
        assert done.ticket is not None
        promised = await stream.start(reservation, work("r2", 40, 8))
        for running in (sequence, promised):
            assert (await stream.stories[running].end()).finish is FinishReason.LENGTH
        await served.client.release_ticket(done.ticket)
        assert await role(served, Role.DECODE) is Role.PREFILL
        assert (await served.client.refused(work("p2", max_tokens=1))).kind is FaultKind.WRONG_ROLE
        await served.quiet()


@pytest.mark.parametrize(("declared", "at_first", "found_out"), [(None, 0.12, 0.04), (0.2, 0.2, 0.2)])
async def test_a_worker_says_which_error_budget_it_goes_by(
    declared: float | None, at_first: float, found_out: float
) -> None:
    """It finds out what is right for it, unless that was declared: by nothing else could anybody see which."""
    async with serve(Role.DECODE, worker={"admission": {"epsilon": declared}}) as served:
        assert (await served.client.state()).error_budget == at_first
        expected = served.worker.decode.ledger.expected
        expected.caution.short_steps = expected.caution.alone_after
        expected._heed()
        assert (await served.client.state()).error_budget == pytest.approx(found_out)


async def test_standard_health_follows_role_and_drain() -> None:
    async with serve(Role.DECODE) as served:
        names = ["", services.WORKER_SERVICE, services.PREFILL_SERVICE, services.DECODE_SERVICE]
        assert [await serving_status(served, name) for name in names] == [True, True, False, True]
        await role(served, Role.PREFILL)
        assert [await serving_status(served, name) for name in names] == [True, True, True, False]
        await drain(served)
        assert [await serving_status(served, name) for name in names] == [True, True, False, False]
        await drain(served, resume=True)
        assert await serving_status(served, services.PREFILL_SERVICE)


async def test_reflection_lists_every_service() -> None:
    import grpc

    async with serve() as served:

        def listed() -> set[str]:
            with grpc.insecure_channel(served.address) as channel:
                return set(ProtoReflectionDescriptorDatabase(channel).get_services())

        assert await asyncio.to_thread(listed) >= {
            services.WORKER_SERVICE,
            services.PREFILL_SERVICE,
            services.DECODE_SERVICE,
            "grpc.health.v1.Health",
        }


async def test_warm_shakes_hands_with_a_peer_and_says_how_fast_the_link_is() -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode:
        stub = services.WARM.unary(decode.client.channel)
        warmed = await stub(prefill.client.info, timeout=HANG_S)
        assert warmed.ok
        assert warmed.transport
        assert warmed.bytes_per_s > 0
        nobody = replace(prefill.client.info, peer_params=b"nonsense")
        failed = await stub(nobody, timeout=HANG_S)
        assert (failed.ok, bool(failed.detail)) == (False, True)


async def test_mutual_tls_from_the_configuration(tmp_path: Path) -> None:
    files = certificates.make(tmp_path, "fleet")
    tls = {"cert_file": files.cert_file, "key_file": files.key_file, "ca_file": files.ca_file}
    async with serve(worker={"tls": tls}) as served, open_channel(served.address, files) as channel:
        assert (await services.DESCRIBE.unary(channel)(None, timeout=HANG_S)).epoch == served.client.info.epoch


async def test_an_engine_that_stops_stepping_is_reported_unhealthy(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("faults: [{kind: engine_hang, after_steps: 3}]")
    async with (
        serve(Role.DECODE, worker={"stall_s": 0.2}, faults=str(script)) as served,
        served.client.attached() as stream,
    ):
        await stream.start(await served.client.reserve(40, 100), work("r1", 40, 100))
        await stream.stories[1].begun.wait()
        async for state in watch(served, 0.05):
            if not state.healthy:
                break
        assert "no engine step" in state.detail


async def test_work_that_is_there_at_the_first_look_has_not_been_waiting_for_ever(tmp_path: Path) -> None:
    """A worker that had just started was called stalled since its clock began, if its first request came at once."""
    script = tmp_path / "faults.yaml"
    script.write_text("faults: [{kind: hang, phase: queue}]")
    async with serve(Role.DECODE, faults=str(script)) as served, served.client.attached() as stream:
        await stream.start(await served.client.reserve(40, 100), work("r1", 40, 100))
        await until(lambda: served.worker.dispatcher.live == 1)
        one = served.worker.state
        fresh = StateKeeper(one.duty, one.dispatcher, one.prefill, one.decode, clock=lambda: 1e6, stall_s=120.0)
        fresh.observe()
        assert fresh.snapshot().healthy


@pytest.mark.slow
async def test_leaked_blocks_show_as_drift(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("faults: [{kind: leak, blocks: 2}]")
    async with serve(Role.DECODE, faults=str(script)) as served, served.client.attached() as stream:
        sequence = await stream.start(await served.client.reserve(40, 8), work("r1"))
        await stream.stories[sequence].end()
        async for state in watch(served, 0.05):
            assert state.healthy  # a reason to look, not a reason to stop
            if state.detail:
                break
        assert state.detail.endswith("KV blocks at idle")


@pytest.mark.parametrize("key", ["bogus", "engine.bogus"])
def test_unknown_keys_are_errors(key: str) -> None:
    from pydantic import ValidationError

    from tandem.worker.config import WorkerConfig

    document = {"engine": {"bogus": 1}} if "." in key else {"bogus": 1}
    with pytest.raises(ValidationError, match="bogus"):
        WorkerConfig.model_validate(document)
