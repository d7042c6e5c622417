"""A defect in one turn of a background task is logged, and the next turn comes all the same."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.cluster.client import WorkerClient
from gateway.cluster.health import Health
from gateway.cluster.probe import Probe
from gateway.cluster.roster import Roster
from gateway.cluster.states import PairState, WorkerStatus
from gateway.cluster.steady import again_and_again
from gateway.request.errors import Reason, RequestError
from proto.worker import Role
from tests.gateway.fleet import PAIR, SOLO, config, expected, fleet, intent, prompt, until

BROKEN = Script.model_validate({"faults": [{"kind": "fail", "after_tokens": 0}]})


@pytest.fixture
def stumble(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[int]]:
    """Makes a method fail by a defect the first time; the list says how often it was called."""

    def once(owner: type, name: str) -> list[int]:
        sound, calls = getattr(owner, name), list[int]()

        def stumbling(*args: Any, **more: Any) -> Any:
            calls.append(len(calls))
            if len(calls) == 1:
                raise RuntimeError("a defect")
            return sound(*args, **more)

        monkeypatch.setattr(owner, name, stumbling)
        return calls

    return once


Stumble = Callable[[type, str], list[int]]


async def test_a_turn_that_fails_is_followed_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []

    async def work() -> None:
        turns.append(len(turns))
        if len(turns) < 3:
            raise RuntimeError("a defect")

    task = asyncio.create_task(again_and_again(work, 0.001, "a chore"))
    await until(lambda: len(turns) > 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert [record.getMessage() for record in caplog.records] == ["a chore"] * 2


async def test_the_clusters_own_turn(stumble: Stumble) -> None:
    calls = stumble(Roster, "tend")
    async with fleet(PAIR) as one:
        await until(lambda: len(calls) > 2)
        assert (await one.ask(intent(prompt(40)))).record.path == "remote"


async def test_a_worker_is_warmed_in_the_end(stumble: Stumble) -> None:
    stumble(Roster, "warm_all")
    async with fleet(SOLO) as one:
        assert (await one.ask(intent(prompt(40)))).tokens() == expected(prompt(40), intent().sampling)


async def test_a_pair_whose_hand_shake_broke_here_is_tried_again(stumble: Stumble) -> None:
    stumble(WorkerClient, "warm")
    async with fleet(PAIR) as one:
        await until(lambda: one.cluster.snapshot().pairs[0].state is PairState.USABLE)
        assert "RuntimeError: a defect" in str(one.watcher.pairs)


async def test_silence_is_noticed(stumble: Stumble, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(SOLO, settings=config(health={"stale_after_s": 0.5})) as one:
        calls = stumble(Health, "tick")
        await until(lambda: len(calls) > 2)
        monkeypatch.setattr(Health, "heard", lambda self, state: None)
        await one.status("b0", WorkerStatus.SUSPECT)


async def test_an_ejected_worker_is_probed_again(stumble: Stumble) -> None:
    async with fleet(SOLO) as one:
        one.members["b0"].engine.injector.use(BROKEN)
        for seed in range(3):
            with pytest.raises(RequestError):
                await one.ask(intent(prompt(40, seed)))
        calls = stumble(Probe, "__call__")
        one.members["b0"].engine.injector.use(Script())
        await one.status("b0", WorkerStatus.READY)
        assert len(calls) >= 2


async def test_debts_behind_one_that_cannot_be_said_are_paid() -> None:
    async with fleet((("d0", Role.DECODE),)) as one:
        worker, paid = one.cluster.worker("d0"), list[str]()
        assert worker is not None

        async def broken(client: WorkerClient) -> None:
            raise RuntimeError("a defect")

        async def sound(client: WorkerClient) -> None:
            paid.append("paid")

        worker.owed += [broken, sound]
        await until(lambda: paid == ["paid"])
        assert worker.owed == []


async def test_a_reserve_call_that_fails_by_a_defect_leaves_no_lease(stumble: Stumble) -> None:
    async with fleet(SOLO) as one:
        stumble(WorkerClient, "reserve")
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40)))
        assert caught.value.reason is Reason.INTERNAL
        await one.settled()
