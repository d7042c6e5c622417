"""Section 5: more work than there is room for."""

import asyncio
from threading import Event
from typing import Any

import pytest

from gateway.cluster.states import WorkerStatus
from gateway.request.phase import Phase
from gateway.text.byte_level import ByteLevelTokenizer
from tests.conformance.replies import COMPLETION, COMPLETION_STREAM, FORMS
from tests.conformance.stack import CARRY, REPLAY, fault, full, right, text_of, truth, whole, words
from tests.gateway.fleet import FOUR, PAIR, config, until
from tests.waiting import HANG_S

OVERLOADS: dict[str, tuple[str, dict[str, Any], str]] = {
    "prefill": ("p", fault("refuse", "prefill", fault="overloaded"), "no_prefill_worker"),
    "decode": ("d", fault("refuse", "pull", fault="overloaded"), "no_decode_worker"),
    "decode KV": ("d", {"kind": "full"}, "queue_timeout"),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", OVERLOADS)
async def test_b53_pressure_on_either_pool_is_503_with_a_reason_and_a_time(where: str) -> None:
    pool, rule, code = OVERLOADS[where]
    names = (f"{pool}0", f"{pool}1")
    deadlines = {"queue_s": 1.0} if where == "decode KV" else {}
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


@pytest.mark.slow
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


@pytest.mark.slow
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
