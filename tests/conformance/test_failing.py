"""Section 5: what breaks, who is told, and who is blamed."""

import asyncio
import random
from typing import Any

import pytest

from gateway.cluster.states import WorkerStatus
from proto.reservation import Reservation, ReserveRequest
from proto.worker import Role
from tests.conformance.replies import COMPLETION, FORMS, Reply
from tests.conformance.stack import CARRY, REPLAY, fault, full, right, script, text_of, truth, whole, words
from tests.examples import first
from tests.gateway.fleet import FOUR, PAIR, config, until
from tests.waiting import HANG_S

LENGTHS = (CARRY, REPLAY)
TRIO = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))
PREFILL_BROKEN = fault("fail", "prefill", after_tokens=0)


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


@pytest.mark.parametrize("n", first(1, [1, 2]))
async def test_b39_when_decode_cannot_take_it_the_prefill_is_let_go_and_one_other_is_asked(n: int) -> None:
    settings = config(health={"failures_to_eject": 1000})
    async with whole(FOUR, settings=settings, scripts={"d0": script(fault("refuse", "pull", fault="internal"))}) as one:
        other = one.members["d1"].worker.decode
        taken = await other.reserve(ReserveRequest("other-gateway", "r", 400, 400, HANG_S))
        assert isinstance(taken, Reservation)  # so d0 has more room and is asked first
        await until(lambda: (seen := one.seen("d1")) is not None and seen.blocks_reserved >= taken.blocks)
        for form in FORMS:
            for length in LENGTHS:
                one.forget()
                await right(one, form, length, n=n)
                assert (await one.account()).decode_worker == "d1"
        assert one.metric("tandem_retries_total", phase="decoding") > 0
        other.ledger.release(taken.reservation_id)
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
        assert one.seen("p0").status is WorkerStatus.EJECTED  # type: ignore[union-attr]  # None would fail the test as well
        one.use("p0")
        await one.status("p0", WorkerStatus.READY)
        for form in FORMS:
            await right(one, form)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "kv_capacity"])
async def test_b44_what_the_request_did_wrong_is_never_the_workers_fault(kind: str) -> None:
    """By the gateway's own word, by the prefill worker's, by the decode worker's: ten times a form each."""
    async with whole(PAIR, max_model_len=256) as one:
        for reply in await asyncio.gather(*[one.post(form, text_of(300, form)) for form in FORMS * 10]):
            assert reply.status == 400
        for worker, leg in (("p0", "prefill"), ("d0", "pull")):
            one.use(worker, fault("refuse", leg, fault=kind))
            for reply in await asyncio.gather(*[one.post(form, text_of(REPLAY, form)) for form in FORMS * 10]):
                assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
            one.use(worker)
        for name in ("p0", "d0"):
            seen = one.seen(name)
            assert seen is not None
            assert (seen.status, seen.consecutive_faults) == (WorkerStatus.READY, 0)
        assert not [after for _, _, after, _ in one.watcher.workers if after is WorkerStatus.EJECTED]
        for form in FORMS:
            await right(one, form)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_b46_a_worker_that_takes_work_and_fails_it_is_out_after_three() -> None:
    settings = config(health={"probe_backoff_s": 30.0})
    async with whole(TRIO, settings=settings, scripts={"p0": script(PREFILL_BROKEN)}) as one:
        for seed in range(6):
            for form in FORMS:
                await right(one, form, seed=seed)
        failed = [asked for asked in one.asked if asked.worker == "p0"]
        assert len(failed) == 3
        assert one.seen("p0").status is WorkerStatus.EJECTED  # type: ignore[union-attr]  # None would fail the test as well
        assert one.metric("tandem_worker_status", worker="p0", status="ejected") == 1
        await one.settled()
