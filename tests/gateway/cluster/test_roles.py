"""Roles that change while a fleet runs: orders, routing, pairs, and requests in flight."""

import asyncio

import pytest

from gateway.cluster.cluster import UnknownWorkerError
from gateway.cluster.states import PairState
from gateway.request.errors import RequestError
from gateway.request.record import Record
from proto.worker import Role
from tests.gateway.fleet import Fleet, expected, fleet, intent, prompt, sampling, until

THREE = (("p0", Role.PREFILL), ("d0", Role.DECODE), ("d1", Role.DECODE))


def usable(one: Fleet) -> set[tuple[str, str]]:
    return {pair.key for pair in one.cluster.pairs if pair.state is PairState.USABLE}


async def test_an_order_tells_what_was_before_and_the_new_pairs_shake_hands() -> None:
    async with fleet(THREE) as one:
        assert await one.cluster.set_role("d1", Role.PREFILL) is Role.DECODE
        assert one.members["d1"].worker.duty.role is Role.PREFILL
        await until(lambda: ("d1", "d0") in usable(one))
        await one.cluster.set_role("p0", Role.DECODE)
        answers = [await one.ask(intent(prompt(40, seed))) for seed in range(3)]
        assert {answer.record.prefill_worker for answer in answers} == {"d1"}
        assert await one.cluster.set_role("d1", Role.PREFILL) is Role.PREFILL


async def test_a_worker_nobody_knows_is_an_error() -> None:
    async with fleet(THREE) as one:
        with pytest.raises(UnknownWorkerError):
            await one.cluster.set_role("d9", Role.BOTH)


async def test_a_pair_whose_writer_no_longer_prefills_is_not_taken_for_service() -> None:
    async with fleet(THREE) as one:
        await one.cluster.set_role("p0", Role.DECODE)
        snapshot = one.cluster.snapshot()
        assert (snapshot.mode, snapshot.missing) == ("none", "no ready prefill worker")
        with pytest.raises(RequestError, match="no prefill worker"):
            await one.ask(intent())
        await one.cluster.set_role("p0", Role.PREFILL)
        assert one.cluster.snapshot().mode == "disaggregated"
        await one.ask(intent())


async def test_a_pair_becomes_two_colocated_workers_and_a_pair_again() -> None:
    async with fleet(THREE[:2]) as one:
        for prefill, decode, mode, path in (
            (Role.BOTH, Role.BOTH, "colocated", "colocated"),
            (Role.PREFILL, Role.DECODE, "disaggregated", "remote"),
        ):
            await one.cluster.set_role("p0", prefill)
            await one.cluster.set_role("d0", decode)
            answer = await one.ask(intent(prompt(40)))
            assert (one.cluster.snapshot().mode, answer.record.path) == (mode, path)


@pytest.mark.slow
async def test_no_request_fails_while_roles_change_under_load() -> None:
    """Every worker changes its role twice; each time somebody is left for both legs."""
    async with fleet(THREE, profile="toy") as one:
        records: list[Record] = []
        over = asyncio.Event()

        async def client(number: int) -> None:
            while not over.is_set():
                seed = number * 1000 + len(records)
                tokens = prompt(40 + seed % 50, seed)
                wanted = intent(tokens, max_tokens=12)
                answer = await one.ask(wanted)
                assert answer.tokens() == expected(tokens, sampling(12))
                records.append(answer.record)

        async def change(worker: str, role: Role) -> None:
            await one.cluster.set_role(worker, role)
            seen = len(records)
            await until(lambda: len(records) >= seen + 20)

        async def operate() -> None:
            await until(lambda: len(records) >= 10)
            for worker, role in (
                ("d1", Role.PREFILL),
                ("p0", Role.BOTH),
                ("d0", Role.BOTH),
                ("d1", Role.DECODE),
                ("p0", Role.PREFILL),
                ("d0", Role.DECODE),
            ):
                await change(worker, role)
            over.set()

        async with asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(client(number))
            tasks.create_task(operate())
        assert {record.prefill_worker for record in records} >= {"p0", "d1"}
        assert {record.decode_worker for record in records} >= {"d0", "d1", "p0"}
        await one.settled()
