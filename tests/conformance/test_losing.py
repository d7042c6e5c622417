"""Section 5: KV, engines and workers that are lost, leave or come back, and what is tried again."""

import asyncio

import pytest

from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role
from tests.conformance.replies import COMPLETION, FORMS
from tests.conformance.stack import CARRY, REPLAY, fault, right, script, text_of, truth, whole
from tests.engine.simulated.hold import Hold
from tests.examples import first
from tests.gateway.fleet import FOUR, PAIR, config, until
from tests.waiting import HANG_S

LENGTHS = (CARRY, REPLAY)
TRIO = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))


@pytest.mark.slow
async def test_b48_kv_that_does_not_arrive_is_computed_again_elsewhere() -> None:
    settings = config(health={"pair_failures_to_quarantine": 1000})
    async with whole(TRIO, settings=settings) as one:
        for form in FORMS:
            for length in LENGTHS:
                for n in (1, 2):
                    one.use("d0", fault("fail", "pull", after_tokens=0, fault="kv_load_failed", times=1))
                    one.forget()
                    await right(one, form, length, seed=length, n=n)
                    assert [asked.worker for asked in one.asked if asked.hold] in (["p0", "p1"], ["p1", "p0"])
                    assert (await one.account()).retries == 1
        await one.settled()


async def test_b48_a_writer_that_dies_before_it_is_read_is_not_waited_for() -> None:
    async with whole(TRIO) as one:
        for form in FORMS:
            one.use("d0", fault("hang", "pull", phase="queue", times=1))
            queue = Hold(one.members["d0"].engine.injector)
            one.forget()
            asked = asyncio.create_task(right(one, form, REPLAY))
            await until(lambda: len(one.decodes) == 1)
            (victim,) = [each.worker for each in one.asked if each.hold]
            gone = one.members.pop(victim)
            await gone.engine.stop()
            await gone.stop()
            queue.let_go()
            await asked
            others = [each.worker for each in one.asked if each.hold][1:]
            assert others == ["p1" if victim == "p0" else "p0"]
            await one.add(victim, Role.PREFILL)
            await one.ready()
        await one.settled(2.0)


@pytest.mark.parametrize("leg", first(1, ["prefill", "pull"]))
async def test_b49_an_engine_is_one_unit_and_what_it_held_may_be_tried_elsewhere(leg: str) -> None:
    """One rank that fails is the whole group: everything in flight fails at once, nothing new goes there."""
    death, victim = (
        fault("die", leg, after_tokens=0 if leg == "prefill" else 1, times=1),
        "p0" if leg == "prefill" else "d0",
    )
    async with whole(FOUR, profile="toy", scripts={victim: script(death)}) as one:
        requests = [(FORMS[seed % 4], text_of(REPLAY, FORMS[seed % 4], seed)) for seed in range(16)]
        replies = await asyncio.gather(*[one.post(form, text, max_tokens=8) for form, text in requests])
        for reply, (form, text) in zip(replies, requests, strict=True):
            if reply.error is None:
                assert reply.tokens() == truth(form, text)
            else:  # it had begun, so it cannot be taken elsewhere; or its one retry hit the same death
                assert reply.error["code"] in ("decode_failed", "worker_lost", "prefill_failed")
                assert reply.status in (200, 502)
        assert sum(reply.error is None for reply in replies) >= 8
        await one.status(victim, WorkerStatus.EJECTED, WorkerStatus.GONE)
        before = len([asked for asked in one.asked if asked.worker == victim])
        for form in FORMS:
            await right(one, form, seed=50)
        assert len([asked for asked in one.asked if asked.worker == victim]) == before


async def test_b50_a_drain_ends_when_the_last_hand_off_has_been_read() -> None:
    """Work in flight ends well, nothing new arrives, and the memory is kept for as long as somebody may read it."""
    slow = fault("hang", "pull", phase="transfer")
    async with whole(FOUR, scripts={"d0": script(slow), "d1": script(slow)}) as one:
        transfers = [Hold(one.members[name].engine.injector) for name in ("d0", "d1")]
        tasks = [asyncio.create_task(right(one, FORMS[seed % 4], REPLAY, seed)) for seed in range(8)]
        await until(lambda: len(one.decodes) == 8)
        prefill = one.members["p0"].worker
        assert await one.cluster.drain("p0") > 0
        await one.status("p0", WorkerStatus.DRAINING)
        drained = asyncio.create_task(prefill.drained())
        await asyncio.sleep(0.05)
        assert not drained.done()
        assert one.members["p0"].engine.stats().tickets_held > 0
        one.forget()
        late = [asyncio.create_task(right(one, form, seed=33)) for form in FORMS]
        await until(lambda: len(one.decodes) == 4)
        assert {asked.worker for asked in one.asked if asked.hold} == {"p1"}
        assert not drained.done()
        for transfer in transfers:
            transfer.let_go()
        await asyncio.gather(*tasks, *late)
        await asyncio.wait_for(drained, HANG_S)
        assert one.members["p0"].engine.stats().tickets_held == 0
        await one.settled()


@pytest.mark.parametrize("name", first(1, ["d0", "p0"]))
async def test_b51_a_worker_back_on_its_address_is_a_stranger(name: str) -> None:
    """Nothing of the old epoch is used: not its tickets, not its pairs, not its streams."""
    async with whole(PAIR) as one:
        for form in FORMS:
            await right(one, form)
            old = one.members[name]
            epoch, port = old.worker.duty.epoch, int(old.address.rpartition(":")[2])
            await old.stop()
            await one.add(name, Role.DECODE if name == "d0" else Role.PREFILL, port=port)
            await one.ready()
            await until(lambda: [pair.state for pair in one.cluster.snapshot().pairs] == [PairState.USABLE])
            assert one.members[name].address == old.address
            assert one.seen(name).epoch != epoch  # type: ignore[union-attr]  # None would fail the test as well
            one.forget()
            reply = await right(one, form, seed=1)
            assert reply.headers["x-tandem-path"] == "remote"
            assert (await one.account()).retries == 0
        await one.settled()


@pytest.mark.slow
async def test_b51_a_ticket_of_the_epoch_before_is_stale_and_the_pair_that_keeps_failing_rests() -> None:
    settings = config(health={"probe_backoff_s": 1.0}, routing={"lease_margin_s": 0.0})
    async with whole(PAIR, settings=settings, kv_lease_s=10.0) as one:
        one.use("p0", {"kind": "stale_epoch", "times": 1})
        assert (await right(one, COMPLETION, REPLAY)).headers["x-tandem-path"] == "remote"
        assert one.metric("tandem_retries_total") == 1
        one.use("p0")
        one.use("d0", fault("fail", "pull", after_tokens=0, fault="kv_load_failed"))
        for form in FORMS[:1]:
            assert (await one.post(form, text_of(REPLAY, form))).error["code"] == "handoff_failed"
        assert one.cluster.snapshot().pairs[0].state is PairState.QUARANTINED
        assert one.metric("tandem_pair_transitions_total", state="quarantined") == 1
        assert {one.seen(name).status for name in ("p0", "d0")} == {WorkerStatus.READY}  # type: ignore[union-attr]  # None would fail the test as well
        one.use("d0")
        await until(lambda: one.cluster.snapshot().pairs[0].state is PairState.USABLE)
        for form in FORMS:
            await right(one, form, REPLAY, 2)
        one.use(
            "p0", {"kind": "clock", "offset_s": 60.0}
        )  # nobody can give back a ticket with a false epoch: its lease ends
        await right(one, COMPLETION, REPLAY, 3)
        await one.settled()
