"""Section 4: clients that leave, leases that end, and what nobody may be left holding."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from decode_pool.attachment import Attachment as WorkerAttachment
from gateway.cluster.states import PairState, WorkerStatus
from gateway.request.errors import Reason
from gateway.request.intent import Intent
from gateway.request.phase import Phase
from gateway.request.record import Record
from gateway.request.running import Running
from proto.work import Start
from tests.conformance.replies import COMPLETION, FORMS, Form
from tests.conformance.stack import CARRY, REPLAY, Whole, fault, script, text_of, truth, whole, words
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import PAIR, config, intent, prompt, until
from tests.waiting import HANG_S

LENGTHS = (CARRY, REPLAY)


def running(one: Whole) -> int:
    return sum(member.held["running"] for member in one.members.values())


async def served(one: Whole) -> None:
    """The next request is served as if nothing had been."""
    for form in FORMS:
        text = text_of(CARRY, form, 77)
        reply = await one.post(form, text)
        assert (reply.status, reply.tokens()) == (200, truth(form, text))


@pytest.mark.parametrize("n", [1, 2])
async def test_b27_leaving_before_decode_accepts_gives_the_prefill_worker_its_blocks_back(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Start never gets there: only an explicit release can free what the ticket pins, long before its lease."""
    starts: list[Start] = []
    monkeypatch.setattr(WorkerAttachment, "start", lambda self, start: starts.append(start))
    async with whole(PAIR, kv_lease_s=600.0) as one:
        prefill = one.members["p0"].engine
        for form in FORMS:
            for length in LENGTHS:
                starts.clear()
                await one.leave(form, text_of(length, form), lambda: bool(starts), n=n)
                assert starts[0].ticket is not None
                await until(lambda: prefill.stats().blocks_used == prefill.stats().tickets_held == 0, 1.0)
                await one.settled(1.0)
        monkeypatch.undo()
        await served(one)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.RESERVED, Phase.PREFILLING, Phase.HANDED_OFF, Phase.DECODING])
@pytest.mark.parametrize("n", [1, 3])
async def test_b27_leaving_at_the_moment_a_phase_begins(phase: Phase, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with whole(PAIR, kv_lease_s=600.0) as one:
        readers: dict[str, asyncio.Task[None]] = {}

        def leave(record: Record, before: Phase, after: Phase, now_s: float) -> None:
            if after is phase:
                readers[record.request_id].cancel()

        monkeypatch.setattr(one.watcher, "phase_changed", leave)

        async def read(wanted: Intent) -> None:
            async with one.lifecycle.open(wanted, one.record(wanted)) as stream:
                async for _ in stream:
                    pass

        for length in LENGTHS:
            wanted = intent(prompt(length), n=n)
            reader = readers[wanted.request_id] = asyncio.create_task(read(wanted))
            await asyncio.wait({reader}, timeout=HANG_S)
            assert reader.cancelled()
            await one.settled(1.0)
        monkeypatch.undo()
        await served(one)


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
async def test_b29_a_pull_that_never_ends_costs_its_deadline_and_no_more(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reservation is free again at the deadline, on both ends, and the engine is looked at before it is trusted."""
    for form in FORMS:
        await _stuck(form, length, monkeypatch)


async def _stuck(form: Form, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = fault("hang", "pull", phase="transfer")
    settings = config(deadlines={"first_token_s": 0.2})
    async with whole(PAIR, settings=settings, scripts={"d0": script(stuck)}) as one:
        transfer = Hold(one.members["d0"].engine.injector)
        reply = await one.post(form, text_of(length, form))
        assert reply.error["code"] == "first_token_timeout"
        assert (reply.status, reply.broken) == ((200, True) if reply.streamed else (504, False))
        await until(lambda: one.cluster.integrity().reservations == 0, 0.25)
        moves = [(name, after) for name, _, after, _ in one.watcher.workers]
        assert ("d0", WorkerStatus.SUSPECT) in moves
        one.use("d0")
        # The transfer itself is not torn: the engine's blocks come back when it is over.
        assert not one.members["d0"].idle
        transfer.let_go()
        await one.settled(2.0)
        assert one.members["d0"].worker.decode.ledger.reserved_blocks == 0
        await one.status("d0", WorkerStatus.READY)
        await until(lambda: one.cluster.snapshot().pairs[0].state is PairState.USABLE)
        with monkeypatch.context() as patient:
            drive = Running.drive
            patient.setattr(
                Running, "drive", lambda self, owner, first_token_s, idle_s: drive(self, owner, HANG_S, idle_s)
            )
            await served(one)


@pytest.mark.slow
async def test_b30_two_hundred_leave_during_the_transfer() -> None:
    """Each is let go at a safe point: nothing torn, no lease lost, no prefill hung, and the pair is as good as new."""
    slow = fault("hang", "pull", phase="transfer", for_s=0.2)
    async with whole(PAIR, scripts={"d0": script(slow)}, kv_lease_s=600.0) as one:
        gate, used = asyncio.Semaphore(40), list[int]()

        async def leave(seed: int) -> None:
            form = FORMS[seed % 4]
            text = text_of(40 + seed % 60, form, seed)
            tokens = form.tokens(text)

            def pulling() -> bool:
                sent = (asked.work.tokens for asked in one.decodes)
                return any(each[: len(tokens)] == tokens and len(each) - len(tokens) < 2 for each in sent)

            async with gate:
                await one.leave(form, text, pulling, n=1 + seed % 2)
                used.append(one.members["d0"].engine.stats().blocks_used)

        await asyncio.gather(*[leave(seed) for seed in range(200)])
        await one.settled(2.0)
        assert len(one.decodes) == 200  # all of them had begun to fetch their KV
        assert max(used) > 0
        for member in one.members.values():
            stats = member.engine.stats()
            assert (stats.tickets_held, stats.tickets_expired, stats.blocks_used) == (0, 0, 0)
        assert one.cluster.snapshot().pairs[0].state is PairState.USABLE
        one.use("d0")
        await served(one)


@pytest.mark.slow
async def test_b31_a_hand_off_that_waited_out_its_lease_is_prefilled_again() -> None:
    """A backlog of pulls on the decode worker longer than the lease: the answers are right all the same."""
    lease_s = 4.0  # also the time that a busy machine has for a pull
    stuck = fault("hang", "pull", phase="transfer", times=16)  # as many pulls as run at once
    settings = config(routing={"lease_margin_s": 0.0}, health={"failures_to_eject": 1000})
    async with whole(PAIR, settings=settings, scripts={"d0": script(stuck)}, kv_lease_s=lease_s) as one:
        transfers = Hold(one.members["d0"].engine.injector)
        requests = [(FORMS[seed % 4], text_of(40 + seed % 3 * 8, FORMS[seed % 4], seed)) for seed in range(24)]
        asked = [asyncio.create_task(one.post(form, text)) for form, text in requests]
        await until(lambda: len(one.prefills) == len(requests))
        await asyncio.sleep(lease_s + 0.5)
        transfers.let_go()
        replies = await asyncio.gather(*asked)
        for reply, (form, text) in zip(replies, requests, strict=True):
            assert (reply.status, reply.tokens()) == (200, truth(form, text))
        assert one.metric("tandem_tickets_expired_total") >= 1
        assert len(one.prefills) == 24 + one.metric("tandem_retries_total") > 24
        # What was refused was never pulled, and nothing was pulled twice.
        pulled = [asked.pull.ticket_id for asked in one.decodes if asked.pull is not None]
        assert len(pulled) == len(set(pulled)) < len(one.prefills)
        await one.settled(2.0)


async def test_b31_a_ticket_that_aged_on_the_way_is_never_dispatched() -> None:
    """What the prefill worker says of its lease leaves too little: the gateway prefills again and then gives up."""
    settings = config(routing={"lease_margin_s": 2.0})
    async with whole(PAIR, settings=settings, kv_lease_s=1.9) as one:
        for form in FORMS:
            one.forget()
            before = one.metric("tandem_tickets_expired_total")
            reply = await one.post(form, text_of(REPLAY, form))
            assert (reply.status, reply.error["code"]) == (502, "handoff_failed")
            assert one.decodes == []
            assert len(one.prefills) == one.metric("tandem_tickets_expired_total") - before > 1
        await one.settled()


async def test_b32_an_abort_that_races_with_the_end_is_a_no_op() -> None:
    """The stop string is complete with the very last token, so the abort meets a sequence that has just ended."""
    async with whole(PAIR) as one:
        for form in FORMS:
            for length in LENGTHS:
                text = text_of(length, form, seed=5)
                told = truth(form, text, 12, ignore_eos=True)
                last = bytes(told).decode(errors="ignore")[-1]
                for n in (1, 2):
                    await one.post(form, text, n=n, stop=[last], max_tokens=12, ignore_eos=True)
        for member in one.members.values():
            for known in {asked.work.request_id for asked in one.asked}:
                await member.engine.abort(known)
            await member.engine.abort("nobody")
        await one.settled()
        assert all(member.worker.dispatcher.dead is None for member in one.members.values())
        await served(one)


#: Where a request waits when its client leaves: what makes it wait, and how one sees that it does.
WAITS: dict[str, tuple[str, dict[str, Any] | None, Callable[[Whole], bool]]] = {
    "queued": ("", None, lambda one: one.cluster.integrity().queued == 1),
    "prefilling": ("p0", fault("hang", "prefill", phase="prefill"), lambda one: len(one.prefills) == 1),
    "transferring": ("d0", fault("hang", "pull", phase="transfer", for_s=0.15), lambda one: len(one.decodes) == 1),
    "before the first decode token": (
        "d0",
        fault("hang", "pull", phase="prefill"),
        lambda one: bool(one.members["d0"].held["running"]),
    ),
    "decoding": (
        "d0",
        fault("hang", "pull", phase="decode", after_tokens=4),
        lambda one: one.members["d0"].engine.stats().generated_tokens >= 3,
    ),
}


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("where", WAITS)
async def test_b34_b35_leaving_stops_the_work_in_every_phase_streaming_or_not(form: Form, where: str) -> None:
    worker, rule, there = WAITS[where]
    options: dict[str, Any] = {"scripts": {worker: script(rule)}} if rule else {}
    if where == "queued":
        options = {"kv_blocks": 8, "profile": "toy", "scripts": {"d0": script({"kind": "full"})}}
    async with whole(PAIR, **options) as one:
        await one.leave(form, text_of(REPLAY, form), lambda: there(one), max_tokens=60, ignore_eos=True)
        await until(lambda: running(one) == 0 and one.cluster.integrity().requests == 0, 0.25)
        record = await one.account()
        assert (record.phase, record.reason) == (Phase.CANCELLED, Reason.CLIENT_GONE)
        one.use("d0")
        await one.settled(1.0)


@pytest.mark.slow
async def test_b37_nothing_is_left_of_many_that_came_and_went() -> None:
    """Leases, slots, tasks and sockets: as many as before. The long version is tests/tandem/test_soak.py."""
    async with whole(PAIR, profile="toy", max_num_seqs=32) as one:
        await served(one)
        await one.client.aclose()
        await asyncio.sleep(0.05)
        tasks = len(asyncio.all_tasks())

        async def come_and_go(seed: int) -> None:
            form = FORMS[seed % 4]
            moments = iter(range(seed % 13))
            await one.leave(
                form,
                text_of(30 + seed % 90, form, seed),
                lambda: next(moments, None) is None,
                n=1 + seed % 3,
                max_tokens=1 + seed % 40,
            )

        for wave in range(3):
            await asyncio.gather(*[come_and_go(40 * wave + seed) for seed in range(40)])
        await one.settled(2.0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks, 2.0, lambda: str(asyncio.all_tasks()))
        for member in one.members.values():
            assert member.idle, member.held
        assert one.metric("tandem_requests_in_flight") == 0
        assert one.metric("tandem_leases") == 0


async def test_b37_a_full_house_of_leavers_does_not_keep_anybody_out() -> None:
    async with whole(PAIR, profile="toy", kv_blocks=24, max_num_seqs=4) as one:
        for wave in range(3):
            leavers = [
                one.leave(COMPLETION, words(40, seed), lambda: bool(one.decodes), max_tokens=300)
                for seed in range(8 * wave, 8 * wave + 8)
            ]
            await asyncio.gather(*leavers)
        text = words(40, 99)
        assert (await one.post(COMPLETION, text)).tokens() == truth(COMPLETION, text)
        await one.settled()
