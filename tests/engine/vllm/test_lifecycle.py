"""Aborts and releases in every phase give the KV back; nothing of an aborted request is yielded."""

import asyncio
import random
from dataclasses import replace

import pytest

from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import Work
from tests.engine.vllm.driver import Driver, greedy, prefill_sampling

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

_DRAW = random.Random(7)


def _prompt(length: int) -> tuple[int, ...]:
    return tuple(_DRAW.randrange(100, 49_000) for _ in range(length))


async def _ticket(writer: Driver, prompt: tuple[int, ...]) -> Ticket:
    return (await writer.run(prompt, prefill_sampling(), hold=True)).ticket


async def test_a_stranded_prefill_is_freed_within_a_second_b27(prefill: Driver) -> None:
    tickets = [await _ticket(prefill, _prompt(700)) for _ in range(3)]
    assert prefill.engine.stats().tickets_held == 3
    assert prefill.engine.stats().blocks_used == 18
    for ticket in tickets:
        assert await prefill.engine.release(ticket.ticket_id)
    await prefill.settled()
    assert prefill.engine.stats().tickets_held == 0
    assert not await prefill.engine.release(tickets[0].ticket_id)
    assert not await prefill.engine.release("never-issued")


async def test_a_stranded_prefill_of_tp2_is_freed_on_every_rank_b27(wide: Driver) -> None:
    ticket = await _ticket(wide, _prompt(700))
    expired = wide.engine.stats().tickets_expired
    assert await wide.engine.release(ticket.ticket_id)
    await wide.settled()
    assert wide.engine.stats().tickets_expired == expired


async def test_an_unread_lease_ends_and_is_counted_once_b31(wide: Driver) -> None:
    expired = wide.engine.stats().tickets_expired
    ticket = await _ticket(wide, _prompt(300))
    await wide.settled()
    assert wide.engine.stats().tickets_expired == expired + 1
    assert not await wide.engine.release(ticket.ticket_id)


async def test_abort_while_queued_or_prefilling_b34(prefill: Driver) -> None:
    ids = []
    for _ in range(24):
        work = Work(prefill.name(), _prompt(1000), prefill_sampling())
        prefill.submit(work, hold=True)
        ids.append(work.request_id)
    await asyncio.sleep(0.05)
    for request_id in ids:
        await prefill.engine.abort(request_id)
    already = [request_id for request_id in ids if prefill.pending(request_id)]
    assert len(already) < len(ids)
    for request_id in already:  # it had ended before the abort: its ticket is in our hands
        output = await prefill.next(request_id)
        assert output.ticket is not None
        await prefill.engine.release(output.ticket.ticket_id)
    await prefill.settled()
    assert not any(prefill.pending(request_id) for request_id in ids)
    assert prefill.engine.stats().running == prefill.engine.stats().waiting == 0


async def test_abort_of_a_held_request_at_any_moment_leaves_nothing_pinned_b30(prefill: Driver) -> None:
    """The abort may cross the end of the prefill: then there is pinned KV, and nobody has its ticket."""
    for attempt in range(60):
        work = Work(prefill.name(), _prompt(200), prefill_sampling())
        prefill.submit(work, hold=True)
        await asyncio.sleep(attempt * 0.0005)
        await prefill.engine.abort(work.request_id)
        if prefill.pending(work.request_id):
            output = await prefill.next(work.request_id)
            assert output.ticket is not None
            await prefill.engine.release(output.ticket.ticket_id)
    await prefill.settled()
    assert prefill.engine.stats().tickets_held == 0


async def test_abort_during_the_pull_waits_for_a_safe_point_b30(prefill: Driver, decode: Driver) -> None:
    """Both sides end at their baseline whenever the reader gives up, and the next request is served."""
    for attempt in range(60):
        prompt = _prompt(600)
        ticket = await _ticket(prefill, prompt)
        work = Work(decode.name(), prompt, greedy(50))
        decode.submit(work, pull=ticket)
        await asyncio.sleep(attempt * 0.0004)
        await decode.engine.abort(work.request_id)
    await prefill.settled()
    await decode.settled()
    assert prefill.engine.stats().tickets_held == 0
    assert len((await decode.run(_prompt(20), greedy(4))).tokens) == 4


async def test_abort_while_decoding_stops_the_work_within_250_ms_b34(decode: Driver) -> None:
    work, before = Work(decode.name(), _prompt(100), greedy(900)), decode.engine.stats().generated_tokens
    decode.submit(work)
    await decode.next(work.request_id)
    await decode.engine.abort(work.request_id)
    seen = decode.pending(work.request_id)
    await decode.settled()
    stats = decode.engine.stats()
    assert (stats.running, stats.blocks_used) == (0, 0)
    assert stats.generated_tokens - before < 900, "it went on to the end"
    assert decode.pending(work.request_id) == seen
    await asyncio.sleep(0.1)
    assert decode.engine.stats().generated_tokens == stats.generated_tokens


async def test_abort_of_ended_and_unknown_requests_is_a_no_op_b32(decode: Driver) -> None:
    work = Work(decode.name(), _prompt(10), greedy(1))
    decode.submit(work)
    assert (await decode.next(work.request_id)).delta.ended
    await decode.engine.abort(work.request_id)
    await decode.engine.abort("never-seen")
    assert len((await decode.run(_prompt(10), greedy(2))).tokens) == 2


async def test_a_request_id_may_be_used_again_while_its_kv_is_pinned(prefill: Driver) -> None:
    prompt, name = _prompt(140), prefill.name()
    tickets = []
    for _ in range(2):
        prefill.submit(Work(name, prompt, prefill_sampling()), hold=True)
        tickets.append((await prefill.next(name)).ticket)
    assert tickets[0] is not None
    assert tickets[1] is not None
    assert tickets[0].ticket_id != tickets[1].ticket_id
    for ticket in tickets:
        assert ticket is not None
        assert await prefill.engine.release(ticket.ticket_id)
    await prefill.settled()


async def test_a_ticket_past_the_block_boundary_is_refused(prefill: Driver, decode: Driver) -> None:
    prompt = _prompt(256)
    ticket = await _ticket(prefill, prompt)
    for tokens in ((*prompt, 5), prompt[:128]):
        with pytest.raises(FaultError) as refusal:
            decode.submit(Work(decode.name(), tokens, greedy(4)), pull=ticket)
        assert refusal.value.fault.kind is FaultKind.TICKET_BOUNDARY
    assert (await decode.run(prompt, greedy(4), pull=ticket)).last.fault is None


async def test_kv_that_cannot_be_loaded_fails_one_request_and_nothing_else(prefill: Driver, decode: Driver) -> None:
    """The writer's address is wrong, or it has another epoch by now, or its blocks do not exist."""
    prompt = _prompt(200)
    ticket = await _ticket(prefill, prompt)
    params = ticket.engine_params
    port = str(prefill.info.peer_params.decode().split('"port": ')[1].split(",")[0]).encode()
    bystander = asyncio.create_task(decode.run(_prompt(50), greedy(300)))
    cases = {
        "gone": replace(ticket, epoch="gone", engine_params=params.replace(ticket.epoch.encode(), b"gone")),
        "blocks": replace(ticket, engine_params=params.split(b'"blocks":')[0] + b'"blocks":[[99999998,99999999]]}'),
        "port": replace(
            ticket,
            epoch="moved",
            engine_params=params.replace(ticket.epoch.encode(), b"moved").replace(b'"port":' + port, b'"port":9'),
        ),
    }
    for broken in cases.values():
        answer = await decode.run(prompt, greedy(4), pull=broken)
        assert answer.last.fault is not None
        assert answer.last.fault.kind is FaultKind.KV_LOAD_FAILED
        assert answer.tokens == ()
    assert len((await bystander).tokens) == 300
    assert (await decode.run(prompt, greedy(4), pull=ticket)).last.fault is None
    failures = {peer.worker_id: peer.failures for peer in decode.engine.stats().transfers}
    assert failures[prefill.info.worker_id] >= len(cases)
    await decode.settled()
    await prefill.settled()


async def test_a_malformed_ticket_is_a_fault_and_never_a_crash(prefill: Driver, decode: Driver) -> None:
    prompt = _prompt(130)
    ticket = await _ticket(prefill, prompt)
    for params in (b"", b"[]", b"\xff\xfe", b"{}", ticket.engine_params[:-5], b"[" * 100_000):
        with pytest.raises(FaultError) as refusal:
            decode.submit(Work(decode.name(), prompt, greedy(4)), pull=replace(ticket, engine_params=params))
        assert refusal.value.fault.kind is FaultKind.KV_LOAD_FAILED
    asking = Sampling(max_tokens=4, prompt_logprobs=1)
    with pytest.raises(FaultError) as refusal:
        decode.submit(Work(decode.name(), prompt, asking), pull=ticket)
    assert refusal.value.fault.kind is FaultKind.INVALID_REQUEST
    with pytest.raises(FaultError) as refusal:
        prefill.submit(Work(prefill.name(), prompt, greedy(4)), pull=ticket)
    assert refusal.value.fault.kind is FaultKind.PAIR_INCOMPATIBLE
    assert await prefill.engine.release(ticket.ticket_id)
    await prefill.settled()
