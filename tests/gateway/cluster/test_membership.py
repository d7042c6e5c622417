"""Workers that join, drain, change role, do not fit, and what the snapshot says of them."""

import asyncio
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import pytest

from engine.simulated.faults import Script
from gateway.cluster.client import WorkerClient
from gateway.cluster.cluster import UnknownWorkerError
from gateway.cluster.states import PairState, WorkerStatus
from gateway.cluster.worker import Worker
from gateway.request.errors import Reason, RequestError
from proto.channel import open_channel
from proto.join import JoinRequest
from proto.services import JOIN
from proto.worker import Role, RoleChange, WorkerInfo, WorkerState
from tests.gateway.fleet import PAIR, SOLO, Fleet, config, expected, fleet, intent, prompt, until
from tests.proto.certificates import make


async def test_workers_join_are_warmed_and_described() -> None:
    async with fleet(PAIR) as one:
        snapshot = one.cluster.snapshot()
        assert (snapshot.mode, snapshot.missing, snapshot.ready) == ("disaggregated", "", True)
        assert [(worker.worker_id, worker.role) for worker in snapshot.workers] == [
            ("d0", Role.DECODE),
            ("p0", Role.PREFILL),
        ]
        assert [(pair.prefill_worker, pair.decode_worker, pair.state) for pair in snapshot.pairs] == [
            ("p0", "d0", PairState.USABLE)
        ]
        assert snapshot.pairs[0].transport
        assert one.cluster.window == 8192
        assert one.cluster.model is not None
        assert one.cluster.integrity().idle


async def test_no_worker_is_ready_before_its_pairs_have_been_tried() -> None:
    async with fleet(PAIR) as one:
        history = [(name, after) for name, _, after, _ in one.watcher.workers]
        usable = [state for state, _ in one.watcher.pairs].index(PairState.USABLE)
        assert usable == 1
        assert history.count(("p0", WorkerStatus.READY)) == 1


async def test_a_static_list_works_too_and_waits_for_its_workers() -> None:
    async with fleet((("b0", Role.BOTH),)) as elsewhere:
        address = elsewhere.members["b0"].address
        settings = config(workers=(address, "127.0.0.1:1"))
        async with fleet(settings=settings) as one:
            await one.status("b0", WorkerStatus.READY)
            answer = await one.ask(intent(prompt(40)))
            assert answer.tokens() == expected(prompt(40), intent().sampling)
            await until(lambda: len(one.cluster.snapshot().unreachable) == 1)
            await until(lambda: "not connected" not in one.cluster.snapshot().unreachable[0].reason)
            assert one.cluster.snapshot().unreachable[0].address == "127.0.0.1:1"


async def test_a_static_worker_that_cannot_be_understood_is_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    describe, calls = WorkerClient.describe, count(1)

    async def once_another_language(self: WorkerClient, timeout_s: float) -> WorkerInfo:
        if next(calls) == 1:
            raise TypeError("a reply of another version")
        return await describe(self, timeout_s)

    async with fleet(SOLO) as elsewhere:
        settings = config(workers=(elsewhere.members["b0"].address,))
        monkeypatch.setattr(WorkerClient, "describe", once_another_language)
        async with fleet(settings=settings) as one:
            await one.status("b0", WorkerStatus.READY)


async def test_a_worker_is_watched_on_after_news_that_could_not_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(SOLO) as one:
        heard, stumbles = Worker.heard, list[int]()

        def stumbling(self: Worker, state: WorkerState) -> None:
            if not stumbles:
                stumbles.append(state.sequence)
                raise RuntimeError("a defect")
            heard(self, state)

        monkeypatch.setattr(Worker, "heard", stumbling)
        worker = one.cluster.worker("b0")
        assert worker is not None
        await until(lambda: bool(stumbles) and worker.state is not None and worker.state.sequence > stumbles[0])
        assert worker.status is WorkerStatus.READY


async def test_with_mutual_tls_everything_is_as_without_and_strangers_stay_out(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path, "ours"), make(tmp_path, "theirs")
    async with fleet(PAIR, settings=config(tls=asdict(ours))) as one:
        assert (await one.ask(intent(prompt(40)))).tokens() == expected(prompt(40), intent().sampling)
        settings = config(tls=asdict(theirs), workers=(one.members["d0"].address,))
        async with fleet(settings=settings) as other:
            await until(lambda: "not connected" not in other.cluster.snapshot().unreachable[0].reason)
            assert other.cluster.snapshot().workers == ()
        await one.settled()


async def test_two_gateways_share_a_worker() -> None:
    async with fleet(SOLO) as one:
        settings = config(workers=(one.members["b0"].address,))
        async with fleet(settings=settings) as other:
            await other.status("b0", WorkerStatus.READY)
            wanted = [intent(prompt(40, seed)) for seed in range(20)]
            answers = await asyncio.gather(
                *[(one if index % 2 else other).ask(each) for index, each in enumerate(wanted)]
            )
            for each, answer in zip(wanted, answers, strict=True):
                assert answer.tokens() == expected(each.prompts[0], each.sampling)
            await until(lambda: one.members["b0"].idle)


async def test_a_drained_worker_gets_no_new_work_until_it_resumes() -> None:
    async with fleet((("b0", Role.BOTH), ("b1", Role.BOTH)), profile="toy") as one:
        await one.cluster.drain("b0")
        await one.status("b0", WorkerStatus.DRAINING)
        answers = await asyncio.gather(*[one.ask(intent(prompt(40, seed))) for seed in range(6)])
        assert {answer.record.decode_worker for answer in answers} == {"b1"}
        await one.cluster.drain("b0", resume=True)
        await one.status("b0", WorkerStatus.READY)
        with pytest.raises(UnknownWorkerError):
            await one.cluster.drain("nobody")


async def test_a_role_changes_while_running() -> None:
    """A fleet of one worker of both roles and one of prefill becomes a pair without a restart."""
    async with fleet((("b0", Role.BOTH), ("x1", Role.BOTH))) as one:
        assert one.cluster.snapshot().mode == "colocated"
        assert one.cluster.snapshot().pairs == ()  # colocated workers need no pairs
        await one.members["x1"].worker.service.set_role(RoleChange(Role.PREFILL))
        await one.members["b0"].worker.service.set_role(RoleChange(Role.DECODE))
        await until(lambda: one.cluster.snapshot().mode == "disaggregated")
        answer = await one.ask(intent(prompt(40)))
        assert (answer.record.path, answer.record.prefill_worker) == ("remote", "x1")
        assert answer.tokens() == expected(prompt(40), intent().sampling)


async def test_b64_an_incompatible_pair_is_refused_with_the_reason() -> None:
    async with fleet((("p0", Role.PREFILL),)) as one:
        await one.add("d0", Role.DECODE, block_size_tokens=32)
        await one.ready()
        snapshot = one.cluster.snapshot()
        assert snapshot.pairs[0].state is PairState.INCOMPATIBLE
        assert "block size differs" in snapshot.missing
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40)))
        assert caught.value.reason is Reason.NO_PREFILL_WORKER


async def join(one: Fleet, request: JoinRequest) -> tuple[bool, str]:
    async with open_channel(one.cluster.join_address) as channel:
        reply = await JOIN.unary(channel)(request)
        return reply.accepted, reply.reason


async def test_b62_a_worker_of_another_model_is_refused_with_the_reason() -> None:
    async with fleet(SOLO) as one:
        other = await one.add("b1", Role.BOTH, served_name="another")
        seen = await one.status("b1", WorkerStatus.EJECTED)
        assert "serves another" in seen.reason
        accepted, reason = await join(one, JoinRequest("b1", other.worker.duty.epoch, other.address))
        assert not accepted
        assert "serves another" in reason
        answers = await asyncio.gather(*[one.ask(intent(prompt(40, seed))) for seed in range(6)])
        assert {answer.record.decode_worker for answer in answers} == {"b0"}
        # When the last worker of the old model is gone, the new one is what the gateway serves.
        await one.members.pop("b0").stop()
        await one.status("b1", WorkerStatus.READY)
        assert (await one.ask(intent(prompt(40)))).record.decode_worker == "b1"


@pytest.mark.parametrize("name", ["a/b", "a b", "Köln", "x" * 300])
async def test_a_worker_whose_name_would_have_to_be_quoted_is_refused_with_the_reason(name: str) -> None:
    async with fleet(SOLO) as one:
        accepted, reason = await join(one, JoinRequest(name, "e", "127.0.0.1:1"))
        assert not accepted
        assert "is no name for a worker" in reason
        assert not one.cluster.snapshot().unreachable


async def test_a_static_worker_whose_name_would_have_to_be_quoted_is_refused_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    describe = WorkerClient.describe

    async def renamed(self: WorkerClient, timeout_s: float) -> WorkerInfo:
        return replace(await describe(self, timeout_s), worker_id="a/b")

    async with fleet(SOLO) as elsewhere:
        monkeypatch.setattr(WorkerClient, "describe", renamed)
        async with fleet(settings=config(workers=(elsewhere.members["b0"].address,))) as one:
            await until(lambda: "is no name for a worker" in one.cluster.snapshot().unreachable[0].reason)
            assert not one.cluster.snapshot().workers


async def test_a_name_that_is_connected_elsewhere_is_not_taken_over_in_the_same_epoch() -> None:
    async with fleet(SOLO) as one:
        member = one.members["b0"]
        epoch = member.worker.duty.epoch
        assert await join(one, JoinRequest("b0", epoch, "localhost:" + member.address.rpartition(":")[2])) == (True, "")
        await asyncio.sleep(0.1)
        assert one.seen("b0").address == member.address  # type: ignore[union-attr]  # None would fail the test as well
        assert (await one.ask(intent(prompt(40)))).tokens()


async def test_b51_a_new_epoch_on_another_port_replaces_the_old_one() -> None:
    async with fleet(SOLO) as one:
        first = one.members["b0"]
        again = await one.add("b0", Role.BOTH)
        await until(lambda: (seen := one.seen("b0")) is not None and seen.epoch == again.worker.duty.epoch)
        await one.status("b0", WorkerStatus.READY)
        assert len(one.cluster.snapshot().workers) == 1
        assert (await one.ask(intent(prompt(40)))).tokens()
        assert first.engine.stats().steps == 0
        await first.stop()


async def test_a_stream_that_breaks_alone_is_opened_again_in_the_same_epoch() -> None:
    async with fleet(PAIR, profile="toy") as one:
        wanted = intent(prompt(40), max_tokens=2000, ignore_eos=True)
        task = asyncio.create_task(one.outcome(wanted))
        await one.begun(wanted)
        epoch = one.members["d0"].worker.duty.epoch
        for attachment in one.members["d0"].worker.decode._attachments:
            attachment.outbox.close()
        _, error = await task
        assert error is not None
        assert error.reason is Reason.WORKER_LOST
        assert (await one.status("d0", WorkerStatus.READY)).epoch == epoch
        assert (await one.ask(intent(prompt(40)))).tokens() == expected(prompt(40), intent().sampling)
        await one.settled()


BROKEN = Script.model_validate({"faults": [{"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}}]})
SOUND = Script()


async def test_b46_b43_a_worker_that_accepts_and_fails_is_ejected_until_a_probe_gets_through() -> None:
    roles = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))
    async with fleet(roles) as one:
        engine = one.members["p0"].engine
        engine.injector.use(BROKEN)
        for seed in range(8):
            await one.ask(intent(prompt(40, seed)))  # each gets its answer from the other one
        await one.status("p0", WorkerStatus.EJECTED)
        why = next(why for name, _, now, why in one.watcher.workers if (name, now) == ("p0", WorkerStatus.EJECTED))
        assert "prefill" in why
        retries = len(one.watcher.retries)
        assert retries == 3
        submitted, moves = engine.stats().prompt_tokens, len(one.watcher.workers)
        await until(lambda: engine.stats().prompt_tokens > submitted)  # it is probed, and stays out
        await one.status("p0", WorkerStatus.EJECTED)
        assert ("p0", WorkerStatus.READY) not in [(name, now) for name, _, now, _ in one.watcher.workers[moves:]]
        engine.injector.use(SOUND)
        await one.status("p0", WorkerStatus.READY)
        await one.ask(intent(prompt(40)))
        assert len(one.watcher.retries) == retries
        await one.settled()


async def test_b43_with_every_prefill_worker_ejected_decode_is_not_bothered() -> None:
    settings = config(routing={"on_prefill_failure": "fail"})
    async with fleet(PAIR, settings=settings) as one:
        one.members["p0"].engine.injector.use(BROKEN)
        for seed in range(3):
            with pytest.raises(RequestError):
                await one.ask(intent(prompt(40, seed)))
        await one.status("p0", WorkerStatus.EJECTED)
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40)))
        assert (caught.value.reason, caught.value.status) == (Reason.NO_PREFILL_WORKER, 503)
        assert one.watcher.records[-1].decode_worker == ""
        one.members["p0"].engine.injector.use(SOUND)
        await one.status("p0", WorkerStatus.READY)
        assert (await one.ask(intent(prompt(40)))).tokens() == expected(prompt(40), intent().sampling)


async def test_b51_a_quarantined_pair_shakes_hands_again_and_comes_back() -> None:
    async with fleet(PAIR) as one:
        broken = {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "where": {"leg": "pull"}, "times": 2}
        one.members["d0"].engine.injector.use(Script.model_validate({"faults": [broken]}))
        with pytest.raises(RequestError):
            await one.ask(intent(prompt(48)))
        assert one.cluster.snapshot().pairs[0].state is PairState.QUARANTINED
        assert one.seen("d0").status is WorkerStatus.READY  # type: ignore[union-attr]  # None would fail the test as well
        await until(lambda: one.cluster.snapshot().pairs[0].state is PairState.USABLE)
        assert (await one.ask(intent(prompt(48)))).record.path == "remote"
        await one.settled()


async def test_the_snapshot_shows_what_is_in_flight() -> None:
    async with fleet(PAIR, profile="toy") as one:
        task = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=100, ignore_eos=True)))
        await until(lambda: one.cluster.snapshot().in_flight == {"decoding": 1})
        decode = one.seen("d0")
        assert decode is not None
        assert (decode.lease_reservations, decode.sequences) == (1, 1)
        assert not one.cluster.integrity().idle
        await until(lambda: (seen := one.seen("d0")) is not None and seen.blocks_reserved > 0 and seen.running == 1)
        await task
        await one.settled()
        await until(lambda: one.cluster.snapshot().pairs[0].transfers == 1)
