"""Section 5: what breaks, who is told, who is blamed, and what is tried again."""

import asyncio
import random
from threading import Event
from typing import Any

import pytest

from gateway.cluster.states import PairState, WorkerStatus
from gateway.request.phase import Phase
from gateway.text.byte_level import ByteLevelTokenizer
from proto.worker import Role
from tests.conformance.replies import COMPLETION, COMPLETION_STREAM, FORMS, Form, Reply
from tests.conformance.stack import CARRY, REPLAY, Whole, fault, script, text_of, truth, whole, words
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import FOUR, PAIR, config, until
from tests.waiting import HANG_S

LENGTHS = (CARRY, REPLAY)
TRIO = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))
PREFILL_BROKEN = fault("fail", "prefill", after_tokens=0)


async def right(one: Whole, form: Form, length: int = CARRY, seed: int = 0, **parameters: Any) -> Reply:
    """A request that must be served, with the text that it must have."""
    text = text_of(length, form, seed)
    reply = await one.post(form, text, **parameters)
    assert (reply.status, reply.done) == (200, True), reply.raw
    for choice in range(parameters.get("n", 1)):
        assert reply.tokens(choice) == truth(form, text)
    return reply


@pytest.mark.parametrize("n", [1, 2])
async def test_b38_a_prompt_too_long_for_the_prefill_worker_is_refused_at_once(n: int) -> None:
    """The decode worker would take it; it never hears of it, and what it had reserved is free again."""
    async with whole() as one:
        await one.add("p0", Role.PREFILL, max_model_len=128)
        await one.add("d0", Role.DECODE, max_model_len=8192)
        await one.ready()
        one.forget()
        for form in FORMS:
            reply = await one.post(form, text_of(500, form), n=n)
            assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
            assert reply.error["numbers"]["max_model_len"] == 128
            beyond = await one.post(form, text_of(8192, form), n=n)
            assert (beyond.status, beyond.error["code"]) == (400, "context_length_exceeded")
        assert one.asked == []
        await one.settled()
        await right(one, FORMS[0])


@pytest.mark.parametrize("n", [1, 2])
async def test_b39_when_decode_cannot_take_it_the_prefill_is_let_go_and_one_other_is_asked(n: int) -> None:
    settings = config(health={"failures_to_eject": 1000})
    async with whole(FOUR, settings=settings, scripts={"d0": script(fault("refuse", "pull", fault="internal"))}) as one:
        for form in FORMS:
            for length in LENGTHS:
                one.forget()
                await right(one, form, length, n=n)
                assert (await one.account()).decode_worker == "d1"
        assert one.metric("tandem_retries_total", phase="decoding") > 0
        one.use("d1", fault("refuse", "pull", fault="internal"))
        for form in FORMS:
            reply = await one.post(form, text_of(REPLAY, form), n=n)
            assert (reply.status, reply.error["code"]) == (502, "decode_failed")
        await one.settled(1.0)  # no ticket waits for its lease


async def test_b39_a_prefill_whose_decode_worker_is_lost_stops_at_once() -> None:
    async with whole(PAIR) as one:
        for form in FORMS:
            one.forget()
            one.use("p0", fault("hang", "prefill", phase="prefill", times=1))
            asked = asyncio.create_task(one.post(form, text_of(CARRY, form)))
            await until(lambda: len(one.prefills) == 1)
            for attachment in one.members["d0"].worker.decode._attachments:
                attachment.outbox.close()
            await until(lambda: one.members["p0"].held["running"] == 0, 0.25)
            assert (await asked).tokens() == truth(form, text_of(CARRY, form))  # it came back, and so did we
        await one.settled()


async def test_b40_without_prefill_workers_the_policy_is_explicit_and_said() -> None:
    decode_only = (("d0", Role.DECODE),)
    async with whole(decode_only) as one:
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form))
            assert (reply.status, reply.error["code"]) == (503, "no_prefill_worker")
            assert int(reply.headers["retry-after"]) >= 1
        assert one.asked == []
        assert one.metric("tandem_requests_total", reason="no_prefill_worker") == 4
        ready = await one.client.get("/readyz")
        assert (ready.status_code, "no ready prefill worker" in ready.json()["missing"]) == (503, True)
    async with whole(decode_only, settings=config(routing={"on_no_prefill": "local"})) as one:
        for form in FORMS:
            one.forget()
            assert (await right(one, form)).headers["x-tandem-path"] == "local"
            assert (await one.account()).path_reason == "no_prefill_worker"
        assert (await one.client.get("/readyz")).json()["mode"] == "local"
        assert one.metric("tandem_requests_total", path="local", outcome="done") == 4


#: Which worker hangs and how, whose deadline ends it, and what the client hears.
HANGS: dict[str, tuple[str, dict[str, Any], str, str, int]] = {
    "prefill": ("p0", fault("hang", "prefill", phase="prefill"), "prefill_s", "prefill_timeout", 504),
    "queue of the engine": ("p0", fault("hang", "prefill", phase="queue"), "prefill_s", "prefill_timeout", 504),
    "first decode token": ("d0", fault("hang", "pull", phase="prefill"), "first_token_s", "first_token_timeout", 504),
    "between tokens": ("d0", fault("hang", "pull", phase="decode", after_tokens=3), "idle_s", "idle_timeout", 504),
    "before a reservation": ("d0", {"kind": "full"}, "queue_s", "queue_timeout", 503),
}


async def full(one: Whole, worker: str = "d0", is_full: bool = True) -> None:
    """The gateway has heard that it is, or is not any more."""
    await until(lambda: (seen := one.seen(worker)) is not None and (seen.blocks_used == seen.blocks_total) is is_full)


@pytest.mark.parametrize("where", HANGS)
async def test_b42_every_phase_that_hangs_ends_by_its_deadline_with_a_reason(where: str) -> None:
    """The churn that this is a part of: tests/gateway/request/test_churn.py."""
    worker, rule, deadline, code, status = HANGS[where]
    deadlines = {deadline: 0.3}
    patient = {"failures_to_eject": 1000, "pair_failures_to_quarantine": 1000, "probe_timeout_s": 1.0}
    settings = config(deadlines=deadlines, routing={"on_prefill_failure": "fail"}, health=patient)
    async with whole(PAIR, settings=settings) as one:
        one.use(worker, rule)
        if where == "before a reservation":
            await full(one)
        replies = await asyncio.gather(*[one.post(form, text_of(REPLAY, form), ignore_eos=True) for form in FORMS])
        for reply in replies:
            assert reply.error["code"] == code
            begun = where == "between tokens" and reply.form.stream
            assert (reply.status, reply.broken) == ((200, True) if begun else (status, False))
        await until(lambda: len(one.watcher.records) == 4)
        assert {str(record.reason) for record in one.watcher.records} == {code}
        assert one.metric("tandem_requests_total", reason=code) == 4
        one.use(worker)
        await one.settled(5.0)  # the probe was struck too


async def test_b43_with_the_prefill_breaker_open_decode_is_left_alone_and_the_probe_goes_to_prefill() -> None:
    settings = config(routing={"on_prefill_failure": "fail"})
    async with whole(PAIR, settings=settings, scripts={"p0": script(PREFILL_BROKEN)}) as one:
        for _ in range(3):
            assert (await one.post(COMPLETION, words(CARRY))).status == 502
        await one.status("p0", WorkerStatus.EJECTED)
        await one.settled()
        one.forget()
        for form in FORMS:
            reply = await one.post(form, text_of(CARRY, form))
            assert (reply.status, reply.error["code"]) == (503, "no_prefill_worker")
        await until(lambda: len(one.watcher.records) == 4)
        assert {record.decode_worker for record in one.watcher.records} == {""}
        assert one.decodes == []
        await until(lambda: bool(one.prefills))  # the probe, and it reached the engine
        assert one.seen("p0").status is WorkerStatus.EJECTED  # type: ignore[union-attr]
        one.use("p0")
        await one.status("p0", WorkerStatus.READY)
        for form in FORMS:
            await right(one, form)


@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "kv_capacity"])
async def test_b44_what_the_request_did_wrong_is_never_the_workers_fault(kind: str) -> None:
    """By the gateway's own word, by the prefill worker's, by the decode worker's: ten times a form each."""
    async with whole(PAIR, max_model_len=256) as one:
        for _ in range(10):
            for form in FORMS:
                assert (await one.post(form, text_of(300, form))).status == 400
        for worker, leg in (("p0", "prefill"), ("d0", "pull")):
            one.use(worker, fault("refuse", leg, fault=kind))
            for _ in range(10):
                for form in FORMS:
                    reply = await one.post(form, text_of(REPLAY, form))
                    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
            one.use(worker)
        for name in ("p0", "d0"):
            seen = one.seen(name)
            assert seen is not None
            assert (seen.status, seen.consecutive_faults) == (WorkerStatus.READY, 0)
        assert not [after for _, _, after, _ in one.watcher.workers if after is WorkerStatus.EJECTED]
        for form in FORMS:
            await right(one, form)


async def test_b45_load_is_the_truth_at_every_moment() -> None:
    """Requests come, go and are cut off while health ticks pass: what the gateway counts is what its workers run."""
    dice = random.Random(3)
    quiet = fault("hang", "pull", phase="decode", after_tokens=2)
    async with whole(PAIR, scripts={"d0": script(quiet)}, settings=config(health={"watch_interval_s": 0.02})) as one:
        held: dict[int, asyncio.Task[Reply]] = {}
        decode = one.members["d0"].worker.decode

        def counted() -> tuple[int, ...]:
            seen, now = one.seen("d0"), one.cluster.integrity()
            assert seen is not None
            return now.requests, now.reservations, now.sequences, seen.lease_reservations

        async def agree(truly: int, left: int) -> None:
            await until(lambda: len(one.watcher.records) == left)
            await until(lambda: counted() == (truly,) * 4, otherwise=lambda: f"{counted()} instead of {truly}")
            await until(lambda: decode.sequences == decode.ledger.reservations == truly)
            await asyncio.sleep(0.05)  # some ticks of health checks
            assert counted() == (truly,) * 4

        left = 0
        for step in range(12):
            while len(held) < 3 or (len(held) < 12 and dice.random() < 0.6):
                form = FORMS[len(held) % 4]
                text = text_of(REPLAY, form, 100 * step + len(held))
                held[100 * step + len(held)] = asyncio.create_task(one.post(form, text, ignore_eos=True))
            await agree(len(held), left)
            for key in dice.sample(sorted(held), dice.randrange(3)):
                held.pop(key).cancel()
                left += 1
            await agree(len(held), left)
        for task in held.values():
            task.cancel()
        await one.settled(5.0)
        assert counted() == (0,) * 4


async def test_b46_a_worker_that_takes_work_and_fails_it_is_out_after_three() -> None:
    settings = config(health={"probe_backoff_s": 30.0})
    async with whole(TRIO, settings=settings, scripts={"p0": script(PREFILL_BROKEN)}) as one:
        for seed in range(6):
            for form in FORMS:
                await right(one, form, seed=seed)
        failed = [asked for asked in one.asked if asked.worker == "p0"]
        assert len(failed) == 3
        assert one.seen("p0").status is WorkerStatus.EJECTED  # type: ignore[union-attr]
        assert one.metric("tandem_worker_status", worker="p0", status="ejected") == 1
        await one.settled()


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


@pytest.mark.parametrize("leg", ["prefill", "pull"])
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


@pytest.mark.parametrize("name", ["d0", "p0"])
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
            assert one.seen(name).epoch != epoch  # type: ignore[union-attr]
            one.forget()
            reply = await right(one, form, seed=1)
            assert reply.headers["x-tandem-path"] == "remote"
            assert (await one.account()).retries == 0
        await one.settled()


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
        assert {one.seen(name).status for name in ("p0", "d0")} == {WorkerStatus.READY}  # type: ignore[union-attr]
        one.use("d0")
        await until(lambda: one.cluster.snapshot().pairs[0].state is PairState.USABLE)
        for form in FORMS:
            await right(one, form, REPLAY, 2)
        one.use(
            "p0", {"kind": "clock", "offset_s": 60.0}
        )  # nobody can give back a ticket with a false epoch: its lease ends
        await right(one, COMPLETION, REPLAY, 3)
        await one.settled()


OVERLOADS: dict[str, tuple[str, dict[str, Any], str]] = {
    "prefill": ("p", fault("refuse", "prefill", fault="overloaded"), "no_prefill_worker"),
    "decode": ("d", fault("refuse", "pull", fault="overloaded"), "no_decode_worker"),
    "decode KV": ("d", {"kind": "full"}, "queue_timeout"),
}


@pytest.mark.parametrize("where", OVERLOADS)
async def test_b53_pressure_on_either_pool_is_503_with_a_reason_and_a_time(where: str) -> None:
    pool, rule, code = OVERLOADS[where]
    names = (f"{pool}0", f"{pool}1")
    deadlines = {"queue_s": 0.2} if where == "decode KV" else {}
    settings = config(routing={"on_prefill_failure": "other"}, deadlines=deadlines)
    async with whole(FOUR, settings=settings) as one:
        for name in names:
            one.use(name, rule)
            if where == "decode KV":
                await full(one, name)
        replies = await asyncio.gather(*[one.post(form, text_of(REPLAY, form)) for form in FORMS])
        for reply in replies:
            assert (reply.status, reply.error["code"]) == (503, code)
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.error["retry_after_s"] > 0
        if where == "decode KV":
            assert one.prefills == []  # nothing is computed that cannot be placed
        assert {member.status for member in one.cluster.snapshot().workers} == {WorkerStatus.READY}
        for name in names:
            one.use(name)
            await full(one, name, is_full=False)
        for form in FORMS:
            await right(one, form)
        await one.settled()


async def test_b54_the_larger_figure_counts_and_silence_closes() -> None:
    """99 % by the engine's word and 2 % by our own: the engine is believed. Nobody's word: nobody gets in."""
    async with whole(PAIR, settings=config(deadlines={"queue_s": 0.25})) as one:
        total = one.metric("tandem_worker_kv_blocks", worker="d0", kind="total")
        one.use("d0", {"kind": "full"})
        await until(lambda: one.metric("tandem_worker_kv_blocks", worker="d0", kind="used") == total)
        assert one.metric("tandem_worker_kv_blocks", worker="d0", kind="reserved") == 0
        for form in FORMS[:2]:
            reply = await one.post(form, text_of(CARRY, form))
            assert (reply.status, reply.error["code"]) == (503, "queue_timeout")
        assert one.asked == []
        one.use("d0")
        await until(lambda: one.metric("tandem_worker_kv_blocks", worker="d0", kind="used") == 0)
        await right(one, COMPLETION)
    async with whole(PAIR, settings=config(deadlines={"queue_s": 0.25}, health={"stale_after_s": 0.5})) as one:
        # The worker goes on serving, but nothing is heard of it any more.
        for task in asyncio.all_tasks():
            if task.get_name() == "watch-d0":
                task.cancel()
        assert "silent" in (await one.status("d0", WorkerStatus.SUSPECT)).reason
        one.forget()
        for form in FORMS[:2]:
            assert (await one.post(form, text_of(CARRY, form))).status == 503
        assert one.asked == []


@pytest.mark.parametrize("n", [1, 3])
async def test_b55_what_never_fits_is_refused_at_once_and_holds_up_nobody(n: int) -> None:
    async with whole(PAIR, kv_blocks=32, profile="toy") as one:
        for form in FORMS:
            big, small = await asyncio.gather(
                one.post(form, text_of(CARRY, form), n=n, max_tokens=32 * 16), right(one, form, CARRY, 1)
            )
            assert (big.status, big.error["code"]) == (400, "kv_capacity")
            assert big.error["numbers"]["blocks_needed"] > big.error["numbers"]["blocks_total"] == 32
            assert small.done
        await one.settled()


async def test_b57_an_answer_that_outgrows_its_reservation_is_preempted_and_still_right() -> None:
    """Growth that nobody declared: estimated low, so decode must preempt. It recomputes; it never asks for a second pull."""
    settings = config(admission={"default_output_tokens": 16}, policy={"rule": "declared"})
    async with whole(PAIR, settings=settings, kv_blocks=16, max_model_len=128, profile="toy") as one:
        requests = [(FORMS[seed % 4], text_of(CARRY, FORMS[seed % 4], seed)) for seed in range(4)]
        replies = await asyncio.gather(
            *[one.post(form, text, max_tokens=None, ignore_eos=True) for form, text in requests]
        )
        for reply, (form, text) in zip(replies, requests, strict=True):
            assert (reply.done, reply.tokens()) == (True, truth(form, text, 128 - CARRY, ignore_eos=True))
        assert one.members["d0"].engine.stats().preemptions > 0
        await until(lambda: one.metric("tandem_worker_preemptions_total", worker="d0") > 0)
        assert len(one.watcher.handoffs) == len([asked for asked in one.decodes if asked.pull is not None]) == 4
        assert len(one.prefills) == 4
        await one.settled()


async def test_b57_growth_that_was_declared_is_reserved_so_that_nobody_is_preempted() -> None:
    settings = config(policy={"rule": "declared"})
    async with whole(PAIR, settings=settings, kv_blocks=16, max_model_len=128, profile="toy") as one:
        requests = [(FORMS[seed % 4], text_of(CARRY, FORMS[seed % 4], seed)) for seed in range(6)]
        replies = await asyncio.gather(
            *[one.post(form, text, max_tokens=128 - CARRY, ignore_eos=True) for form, text in requests]
        )
        for reply, (form, text) in zip(replies, requests, strict=True):
            assert reply.tokens() == truth(form, text, 128 - CARRY, ignore_eos=True)
        assert one.members["d0"].engine.stats().preemptions == 0
        assert {record.phase for record in one.watcher.records} <= {Phase.DONE}
        await one.settled()


async def test_b58_a_client_with_a_giant_prompt_makes_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liveness and streams go on while 400k tokens are prepared, however long that takes; with a real tokenizer:
    tests/gateway/http/test_loop_health.py."""
    encode, begun, others_done = ByteLevelTokenizer.encode, Event(), Event()

    def slowly(self: ByteLevelTokenizer, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        if len(text) > 100_000:
            begun.set()
            assert others_done.wait(HANG_S)
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(ByteLevelTokenizer, "encode", slowly)
    settings = config(deadlines={"tokenize_s": 2 * HANG_S})
    async with whole(PAIR, profile="toy", settings=settings) as one:
        stream = asyncio.create_task(one.post(COMPLETION_STREAM, words(CARRY), max_tokens=100, ignore_eos=True))
        giants = [asyncio.create_task(one.post(form, words(400_000))) for form in FORMS]
        await until(begun.is_set)
        for _ in range(20):
            assert (await one.client.get("/livez")).status_code == 200
        assert (await stream).done
        assert not any(giant.done() for giant in giants)
        others_done.set()
        for giant in giants:
            assert (await giant).error["code"] == "context_length_exceeded"
