"""Hand-off between two simulated engines: tickets, leases, pulls."""

import asyncio
import base64
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.simulated.address import Address
from proto.fault import FaultError, FaultKind
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.worker import Topology
from tests.engine.simulated.fleet import engine, pair, text, tokens
from tests.waiting import HANG_S

_ROOT = Path(__file__).parents[3]
GREEDY = Sampling(max_tokens=24, temperature=0.0, ignore_eos=True)


def prompt(length: int) -> tuple[int, ...]:
    rng = random.Random(length)
    return tuple(rng.randrange(97, 123) for _ in range(length))


@pytest.mark.parametrize("length", [1, 2, 15, 17, 31, 33, 100, 250])
async def test_carried_first_token_and_pulled_rest_equal_a_colocated_answer(length: int) -> None:
    async with pair() as (writer, reader), engine("both") as alone:
        whole = await alone.run("a", prompt(length), GREEDY)
        first, ticket = await writer.prefill("p", prompt(length), temperature=0.0)
        rest = await reader.run("d", (*prompt(length), first), replace(GREEDY, max_tokens=23), pull=ticket)
        assert (first, *rest) == whole
        await writer.until(lambda: writer.used == 0)
        assert reader.used == 0
        (moved,) = reader.engine.stats().transfers
        assert (moved.worker_id, moved.transfers, moved.failures) == ("p", 1, 0)
        assert moved.bytes == -(-(length + 1) // 16) * 16 * writer.info.kv_bytes_per_token


@pytest.mark.parametrize("length", [16, 32, 40])
async def test_replayed_first_token_equals_a_colocated_answer(length: int) -> None:
    sampling = Sampling(max_tokens=24, ignore_eos=True, seed=11)
    async with pair() as (writer, reader), engine("both") as alone:
        whole = await alone.run("a", prompt(length), sampling)
        _, ticket = await writer.prefill("p", prompt(length), seed=11)
        assert await reader.run("d", prompt(length), sampling, pull=ticket) == whole


async def test_a_hand_off_after_several_tokens_goes_on() -> None:
    async with pair() as (writer, reader), engine("both") as alone:
        whole = await alone.run("a", prompt(20), GREEDY)
        writer.submit("p", prompt(20), replace(GREEDY, max_tokens=9), hold=True)
        outputs = await writer.end_of("p")
        begun, ticket = tokens(outputs), outputs[-1].ticket
        assert ticket is not None
        assert ticket.computed_tokens == 28
        rest = await reader.run("d", prompt(20) + begun, replace(GREEDY, max_tokens=15), pull=ticket)
        assert begun + rest == whole


async def test_several_tokens_that_stop_by_themselves_are_an_answer_and_pin_nothing() -> None:
    async with pair() as (writer, _):
        whole = await writer.run("a", prompt(20), GREEDY)
        stops = replace(GREEDY, max_tokens=9, stop_token_ids=(whole[3],))
        writer.submit("p", prompt(20), stops, hold=True)
        outputs = await writer.end_of("p")
        assert (tokens(outputs), outputs[-1].ticket) == (whole[:4], None)
        assert writer.fault_of("p") is None
        await writer.until(lambda: writer.used == 0)


async def test_one_block_more_than_the_writer_holds_is_refused() -> None:
    async with pair() as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(32))
        with pytest.raises(FaultError) as caught:
            reader.submit("d", (*prompt(32), first), GREEDY, pull=ticket)
        assert caught.value.fault.kind is FaultKind.TICKET_BOUNDARY
        assert await writer.engine.release(ticket.ticket_id)


async def test_b27_release_frees_at_once_and_only_once() -> None:
    async with pair() as (writer, _):
        _, ticket = await writer.prefill("p", prompt(100))
        assert writer.used == 7
        assert writer.engine.stats().tickets_held == 1
        assert await writer.engine.release(ticket.ticket_id)
        assert writer.used == 0
        assert not await writer.engine.release(ticket.ticket_id)
        assert not await writer.engine.release("nonsense")


async def test_b31_an_expired_lease_frees_the_writer_and_fails_the_reader() -> None:
    async with pair(kv_lease_s=0.1) as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(40))
        await writer.until(lambda: writer.used == 0)
        assert writer.engine.stats().tickets_expired == 1
        reader.submit("d", (*prompt(40), first), GREEDY, pull=ticket)
        await reader.end_of("d")
        fault = reader.fault_of("d")
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_EXPIRED
        assert reader.used == 0
        with pytest.raises(FaultError) as caught:
            reader.submit("old", (*prompt(40), first), GREEDY, pull=replace(ticket, age_s=0.2))
        assert caught.value.fault.kind is FaultKind.TICKET_EXPIRED


@pytest.mark.slow
async def test_the_lease_is_renewed_while_the_reader_waits_for_a_slot() -> None:
    async with pair(profile="toy", kv_lease_s=6.0, max_num_seqs=1) as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(40))
        (pin,) = writer.engine._handoff.pins._held.values()
        deadline_s = pin.deadline_s
        reader.submit("busy", prompt(30), Sampling(max_tokens=8000, ignore_eos=True))
        reader.submit("d", (*prompt(40), first), GREEDY, pull=ticket)
        await writer.until(lambda: pin.deadline_s > deadline_s)
        assert not reader.ended("busy")
        assert writer.used > 0
        await reader.engine.abort("busy")
        await reader.end_of("d")
        assert reader.fault_of("d") is None
        assert writer.engine.stats().tickets_expired == 0


async def test_b51_a_ticket_of_an_earlier_epoch_is_stale() -> None:
    async with pair() as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(40))
        reader.submit("d", (*prompt(40), first), GREEDY, pull=replace(ticket, epoch="before"))
        await reader.end_of("d")
        fault = reader.fault_of("d")
        assert fault is not None
        assert fault.kind is FaultKind.TICKET_STALE
        await writer.engine.release(ticket.ticket_id)


async def test_b48_a_writer_that_is_gone_fails_the_pull_and_nothing_else() -> None:
    async with engine("d") as reader:
        async with engine("p") as writer:
            first, ticket = await writer.prefill("p", prompt(40))
        reader.submit("d", (*prompt(40), first), GREEDY, pull=ticket)
        await reader.end_of("d")
        fault = reader.fault_of("d")
        assert fault is not None
        assert fault.kind is FaultKind.KV_LOAD_FAILED
        assert len(await reader.run("next", prompt(10), GREEDY)) == 24
        assert reader.engine.stats().transfers[0].failures == 1


async def test_aborting_a_reader_that_has_not_begun_frees_the_writer() -> None:
    async with pair(profile="toy", max_num_seqs=1) as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(40))
        reader.submit("busy", prompt(30), Sampling(max_tokens=100, ignore_eos=True))
        reader.submit("d", (*prompt(40), first), GREEDY, pull=ticket)
        await asyncio.sleep(0.01)
        await reader.engine.abort("d")
        await writer.until(lambda: writer.used == 0)
        assert not reader.outputs.get("d")
        await reader.end_of("busy")
        assert reader.used == 0


async def test_b30_two_hundred_aborts_during_the_transfer_leak_nothing() -> None:
    # 250 tokens at 23 kB over a link of 1.2 GB/s and 0.2 ms: about 5 ms each
    rng = random.Random(5)
    async with pair(link="tcp", kv_lease_s=HANG_S) as (writer, reader):
        for number in range(200):
            length = 201 + number % 7  # never a whole number of blocks
            first, ticket = await writer.prefill(f"p{number}", prompt(length))
            reader.submit(f"d{number}", (*prompt(length), first), GREEDY, pull=ticket, cache_salt=str(number))
            await asyncio.sleep(rng.random() * 0.004)
            await reader.engine.abort(f"d{number}")
        await reader.until(lambda: reader.used == 0 and writer.used == 0)
        assert writer.engine.stats().tickets_held == 0
        assert len(await reader.run("after", prompt(10), GREEDY)) == 24


async def test_what_the_reader_has_cached_is_not_moved_again() -> None:
    async with pair() as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(100))
        await reader.run("d", (*prompt(100), first), GREEDY, pull=ticket)
        before = reader.engine.stats().transfers[0].bytes
        first, ticket = await writer.prefill("p2", prompt(100))
        await reader.run("d2", (*prompt(100), first), GREEDY, pull=ticket)
        after = reader.engine.stats().transfers[0].bytes
        assert after - before == 16 * reader.info.kv_bytes_per_token
        await writer.until(lambda: writer.used == 0)


async def test_transfers_take_latency_and_size_over_bandwidth_and_share_the_link() -> None:
    length = 1000
    async with pair(profile="instant", link="tcp", block_size_tokens=16) as (writer, reader):
        size = -(-(length + 1) // 16) * 16 * writer.info.kv_bytes_per_token
        alone_s = 200e-6 + size / 1.2e9

        async def pull(name: str) -> float:
            first, ticket = await writer.prefill(f"p{name}", prompt(length))
            reader.submit(name, (*prompt(length), first), GREEDY, pull=ticket, cache_salt=name)
            return (await reader.end_of(name))[0].delta.transfer_s

        assert alone_s * 0.9 < await pull("a")
        started = time.monotonic()
        together = await asyncio.gather(*(pull(name) for name in "bcde"))
        assert time.monotonic() - started > 3.5 * alone_s
        assert max(together) > 3 * alone_s


async def test_the_wait_of_a_pulled_request_does_not_count_its_pull() -> None:
    """Queue, transfer and steps are told apart, so that the stages of a request add up (R-55)."""
    async with pair(profile="instant", link="tcp") as (writer, reader):
        first, ticket = await writer.prefill("p", prompt(3000))
        submitted = time.monotonic()
        reader.submit("d", (*prompt(3000), first), GREEDY, pull=ticket)
        delta = (await reader.end_of("d"))[0].delta
        assert delta.transfer_s > 0
        assert delta.queue_s + delta.transfer_s < time.monotonic() - submitted


async def test_hand_offs_leave_no_task_behind() -> None:
    async with pair() as (writer, reader):
        before = len(asyncio.all_tasks())
        for number in range(20):
            first, ticket = await writer.prefill(f"p{number}", prompt(40))
            await reader.run(f"d{number}", (*prompt(40), first), GREEDY, pull=ticket)
        await writer.until(lambda: writer.used == 0)
        await reader.until(lambda: len(asyncio.all_tasks()) <= before + 2)  # one connection, seen from both ends


async def test_warming_needs_a_common_link_and_a_living_peer() -> None:
    async with engine("a") as one, engine("b", link="rdma") as other:
        result = await one.engine.warm(other.info)
        assert (result.ok, result.transport) == (True, "nvlink")
        assert result.bytes_per_s > 1e11
        refused = await other.engine.warm(one.info)
        assert not refused.ok
        assert "rdma" in refused.detail
    async with engine("c") as one:
        assert not (await one.engine.warm(other.info)).ok


def test_engines_of_other_versions_may_know_other_words_for_their_place() -> None:
    """A fleet is upgraded one worker at a time: pairs of old and new ones were quarantined."""
    address = Address("h", 1, Topology("h", nvlink_domain="x", transports=("nvlink", "tcp")))
    told = json.loads(address.encode())
    assert set(told["topology"]) == {"host", "nvlink_domain", "device", "transports"}
    told["topology"]["room"] = "north"
    assert Address.decode(json.dumps({**told, "more": 1}).encode()) == address


async def test_a_peer_that_talks_nonsense_does_no_harm() -> None:
    async with engine("p") as writer:
        address = writer.engine._handoff.address
        channel_reader, channel = await asyncio.open_connection(address.host, address.port)
        channel.write(b"not json\n")
        assert await channel_reader.read() == b""
        channel.close()
        first, _ = await writer.prefill("p", text("still", "alive"))
        assert first > 0


_WRITER = """
import asyncio, base64, dataclasses, json, sys
from tests.engine.simulated.fleet import engine

async def main():
    async with engine("p") as writer:
        first, ticket = await writer.prefill("p", tuple(json.loads(sys.argv[1])), temperature=0.0)
        fields = dataclasses.asdict(ticket) | {"engine_params": base64.b64encode(ticket.engine_params).decode()}
        print(json.dumps({"first": first, "ticket": fields}), flush=True)
        await writer.until(lambda: writer.used == 0)
        print("freed", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_writer_and_reader_in_different_processes() -> None:
    async with engine("d") as reader, engine("both") as alone:
        whole = await alone.run("a", prompt(50), GREEDY)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WRITER, json.dumps(prompt(50)), stdout=asyncio.subprocess.PIPE, cwd=_ROOT
        )
        assert process.stdout is not None
        said = json.loads(await process.stdout.readline())
        ticket = Ticket(**{**said["ticket"], "engine_params": base64.b64decode(said["ticket"]["engine_params"])})
        rest = await reader.run("d", (*prompt(50), said["first"]), replace(GREEDY, max_tokens=23), pull=ticket)
        assert (said["first"], *rest) == whole
        assert await process.stdout.readline() == b"freed\n"
        assert await process.wait() == 0
