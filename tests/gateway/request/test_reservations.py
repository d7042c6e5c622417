"""A reservation lasts for as long as its prompt is computed, or the computing stops (invariant 1)."""

import asyncio
from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

import decode_pool.ledger
from gateway.cluster.client import WorkerClient
from gateway.config import GatewayConfig
from gateway.request.phase import Phase
from proto.reservation import ReleaseReservation
from proto.worker import Role
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import PAIR, Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S

#: What a worker grants here, in seconds; a third of it passes between two renewals, and the rest is for a busy machine.
TTL_S = 3.0
#: Once more often than it takes to live longer than was granted.
RENEWALS = 4


def slow(phase: str = "queue") -> dict[str, Any]:
    """The first prefill does not end by itself; a Hold can end one that hangs in the queue."""
    return {"faults": [{"kind": "hang", "phase": phase, "where": {"leg": "prefill"}, "times": 1}]}


def renewed(one: Fleet, monkeypatch: pytest.MonkeyPatch, fails_first: bool = False) -> list[str]:
    """The renewals that reach the decode worker; the first may fail by a defect of it."""
    ledger, asked = one.members["d0"].worker.decode.ledger, list[str]()
    renew = ledger.renew

    def noted(reservation_id: str, gateway_id: str) -> bool:
        asked.append(reservation_id)
        if fails_first and len(asked) == 1:
            raise RuntimeError("a defect")
        return renew(reservation_id, gateway_id)

    monkeypatch.setattr(ledger, "renew", noted)
    return asked


@pytest.mark.slow
async def test_a_reservation_outlives_a_prefill_that_takes_longer_than_its_time_to_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker grants less than was asked for, and the gateway goes by what was granted."""
    monkeypatch.setattr(decode_pool.ledger, "MAX_TTL_S", TTL_S)
    async with fleet(PAIR, scripts={"p0": slow()}) as one:
        prefill, renewals = Hold(one.members["p0"].engine.injector), renewed(one, monkeypatch)
        task = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=20)))
        await until(lambda: len(renewals) >= RENEWALS)
        prefill.let_go()
        answer = await task
        assert answer.tokens() == expected(prompt(40), intent(max_tokens=20).sampling)
        assert answer.record.retries == 0
        assert one.members["p0"].engine.stats().prompt_tokens == 40  # computed once
        await one.settled()


@pytest.mark.slow
async def test_it_outlives_a_prefill_that_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool.ledger, "MAX_TTL_S", TTL_S)
    settings = config(deadlines={"prefill_s": 2 * TTL_S})
    roles = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))
    async with fleet(roles, scripts={"p0": slow("prefill"), "p1": slow()}, settings=settings) as one:
        second, renewals = Hold(one.members["p1"].engine.injector), renewed(one, monkeypatch)
        task = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=20)))
        await until(lambda: len(renewals) >= RENEWALS)
        second.let_go()
        answer = await task
        assert answer.tokens() == expected(prompt(40), intent(max_tokens=20).sampling)
        assert answer.record.retries <= 1
        assert all("reservation" not in retry for retry in one.watcher.retries)
        await one.settled()


def forget_reservations(one: Fleet) -> None:
    ledger = one.members["d0"].worker.decode.ledger
    for reservation_id in [grant.reservation_id for grant in ledger.grants]:
        ledger.release(reservation_id)


async def test_a_reservation_that_is_lost_stops_the_prefill_and_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool.ledger, "MAX_TTL_S", TTL_S)
    async with fleet(PAIR, scripts={"p0": slow("prefill")}) as one:
        task = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=20)))
        await until(lambda: one.cluster.integrity().prefills == 1)
        forget_reservations(one)
        answer = await asyncio.wait_for(task, HANG_S)
        assert answer.tokens() == expected(prompt(40), intent(max_tokens=20).sampling)
        assert answer.record.retries == 1
        assert answer.record.path == "remote"
        await one.settled()


@pytest.mark.slow
async def test_renewals_that_fail_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_pool.ledger, "MAX_TTL_S", TTL_S)
    async with fleet(PAIR, scripts={"p0": slow()}) as one:
        prefill, renewals = Hold(one.members["p0"].engine.injector), renewed(one, monkeypatch, fails_first=True)
        task = asyncio.create_task(one.ask(intent(prompt(40))))
        await until(lambda: len(renewals) > RENEWALS)
        prefill.let_go()
        answer = await task
        assert answer.record.retries == 0
        await one.settled()


async def test_a_release_that_is_not_heard_in_time_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was too busy for two calls kept what nobody wanted until its time to live had ended."""
    release, calls = WorkerClient.release_reservation, count(1)

    async def late(self: WorkerClient, wanted: ReleaseReservation, timeout_s: float) -> bool:
        if next(calls) <= 3:
            raise TimeoutError("not in time")
        return await release(self, wanted, timeout_s)

    monkeypatch.setattr(WorkerClient, "release_reservation", late)
    async with fleet(PAIR, scripts={"p0": slow("prefill")}) as one:
        await one.leave_in(intent(prompt(40)), Phase.PREFILLING)
        await one.settled()


def test_a_time_to_live_shorter_than_a_prefill_is_a_mistake_with_a_message() -> None:
    with pytest.raises(ValidationError, match=r"reservation_ttl_s is 100 s.*305 s.*Raise reservation_ttl_s"):
        GatewayConfig.model_validate({"admission": {"reservation_ttl_s": 100}, "deadlines": {"prefill_s": 300}})


@pytest.mark.parametrize("prefill_s", [1.0, 120.0, 3000.0])
def test_left_unset_it_follows_the_deadlines(prefill_s: float) -> None:
    settings = GatewayConfig.model_validate({"deadlines": {"prefill_s": prefill_s}})
    assert settings.reservation_ttl_s > prefill_s + settings.deadlines.reserve_s
