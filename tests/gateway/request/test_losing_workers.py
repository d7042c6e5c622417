"""Workers that die, hang, drain and come back, as processes of their own."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.cluster.states import WorkerStatus
from gateway.request.errors import Reason
from gateway.request.intent import Intent
from gateway.request.phase import Phase
from proto.worker import Role
from tests.gateway.fleet import Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S

#: Each starts processes; the same losses within one process: tests/conformance/test_failing.py, test_losing.py.
pytestmark = pytest.mark.slow


def long(seed: int = 0) -> Intent:
    return intent(prompt(40, seed), max_tokens=1500, ignore_eos=True)


def toys(roles: tuple[tuple[str, Role], ...] = (), **options: Any) -> AbstractAsyncContextManager[Fleet]:
    """Workers of this process that fit those that `spawn` starts."""
    return fleet(roles, profile="toy", **options)


async def up(one: Fleet, *names: str) -> None:
    for name in names:
        await one.status(name, WorkerStatus.READY)


async def test_b23_a_decode_worker_killed_in_mid_stream() -> None:
    async with toys((("p0", Role.PREFILL), ("d0", Role.DECODE))) as one:
        killed = await one.spawn(
            "d1", Role.DECODE, speedup=0.1
        )  # whatever it begins is still running when it is killed
        await up(one, "p0", "d0", "d1")
        wanted = [long(seed) for seed in range(6)]
        tasks = [asyncio.create_task(one.outcome(each)) for each in wanted]
        await one.begun(*wanted)
        killed.kill()
        await one.status("d1", WorkerStatus.GONE)
        outcomes = await asyncio.gather(*tasks)
        broken = [(answer, error) for answer, error in outcomes if error is not None]
        assert broken
        for answer, failure in broken:
            assert failure.reason is Reason.WORKER_LOST  # and no deadline
            assert answer.record.decode_worker == "d1"
            assert answer.record.retries == 0  # tokens had been shown: nothing is tried again
        for each, (answer, error) in zip(wanted, outcomes, strict=True):
            if error is None:
                assert answer.record.decode_worker == "d0"
                assert answer.tokens() == expected(each.prompts[0], each.sampling)
        assert len(broken) < 6
        await one.settled(HANG_S)
        await one.spawn("d1", Role.DECODE)  # the same name, another port and epoch
        await up(one, "d1")
        answers = await asyncio.gather(*[one.ask(intent(prompt(40, seed), max_tokens=200)) for seed in range(8)])
        assert {answer.record.decode_worker for answer in answers} == {"d0", "d1"}


async def test_b51_a_worker_that_restarts_on_its_port_is_a_new_epoch() -> None:
    async with toys((("p0", Role.PREFILL),)) as one:
        first = await one.spawn("d0", Role.DECODE)
        await up(one, "p0", "d0")
        address = one.seen("d0").address  # type: ignore[union-attr]  # None would fail the test as well
        epoch = one.seen("d0").epoch  # type: ignore[union-attr]  # None would fail the test as well
        await one.ask(intent(prompt(40)))
        first.kill()
        await one.status("d0", WorkerStatus.GONE)
        await one.spawn("d0", Role.DECODE, port=int(address.rpartition(":")[2]))
        await up(one, "d0")
        again = one.seen("d0")
        assert again is not None
        assert (again.address, again.epoch != epoch) == (address, True)
        answer = await one.ask(intent(prompt(40)))
        assert answer.record.path == "remote"
        assert answer.tokens() == expected(prompt(40), intent().sampling)


@pytest.mark.parametrize("policy", ["other_then_local", "local"])
async def test_a_prefill_worker_killed_during_prefill(policy: str) -> None:
    """The request completes, for there is another way."""
    settings = config(routing={"on_prefill_failure": policy})
    async with toys((("d0", Role.DECODE),), settings=settings) as one:
        killed = await one.spawn("p0", Role.PREFILL, speedup=0.01)  # the prompt takes it about 20 s
        await up(one, "p0")
        task = asyncio.create_task(one.outcome(intent(prompt(8_000))))
        await until(lambda: one.cluster.integrity().prefills == 1)
        await asyncio.sleep(0.03)
        killed.kill()
        answer, error = await task
        assert error is None, error
        assert answer.tokens() == expected(prompt(8_000), intent().sampling)
        assert (answer.record.path, answer.record.retries) == ("local", 1)
        await one.settled(HANG_S)


async def test_b39_a_decode_worker_killed_before_its_first_token() -> None:
    async with toys((("p0", Role.PREFILL),)) as one:
        killed = await one.spawn("d0", Role.DECODE)
        await up(one, "d0")
        other = await one.spawn("d1", Role.DECODE)
        await up(one, "d1")
        victims = {"d0": killed, "d1": other}
        one.members["p0"].engine.injector.use(_hang("prefill", 60.0))
        task = asyncio.create_task(one.outcome(intent(prompt(48), max_tokens=20)))
        await until(lambda: one.cluster.integrity().prefills == 1)
        name = next(worker.worker_id for worker in one.cluster.snapshot().workers if worker.lease_reservations)
        victims[name].kill()
        answer, error = await task
        assert error is None, error
        assert answer.tokens() == expected(prompt(48), intent(max_tokens=20).sampling)
        assert answer.record.decode_worker != name
        assert answer.record.retries == 1  # the prefill that had lost its purpose was not waited for
        await one.settled(HANG_S)


@pytest.mark.parametrize("role", list(Role))
async def test_b50_sigterm_loses_nothing_in_flight(role: Role) -> None:
    roles = tuple((f"{kind.value[0]}0", kind) for kind in Role if kind is not role)
    async with toys(roles if role is not Role.BOTH else ()) as one:
        process = await one.spawn("victim", role)
        await up(one, "victim")
        wanted = [intent(prompt(40 + seed, seed), max_tokens=150, ignore_eos=True) for seed in range(12)]

        def promised(each: Intent) -> bool:
            account = one.accounts.get(each.request_id)
            return account is not None and account.phase not in (Phase.RECEIVED, Phase.QUEUED)

        tasks = [asyncio.create_task(one.outcome(each)) for each in wanted]
        await until(lambda: one.cluster.integrity().sequences >= 1 and all(map(promised, wanted)))
        process.send_signal(signal.SIGTERM)
        for each, (answer, error) in zip(wanted, await asyncio.gather(*tasks), strict=True):
            assert error is None, error
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
        assert await asyncio.wait_for(process.wait(), HANG_S) == 0
        await one.settled(HANG_S)


async def test_b42_a_worker_that_hangs_is_taken_out_and_requests_end_by_their_deadlines() -> None:
    async with toys(settings=config(deadlines={"idle_s": 2.0, "queue_s": 3.0})) as one:
        process = await one.spawn("b0", Role.BOTH)
        await up(one, "b0")
        wanted = long()
        running = asyncio.create_task(one.outcome(wanted))
        await one.begun(wanted)
        process.send_signal(signal.SIGSTOP)
        try:
            _, error = await running
            assert error is not None
            assert error.reason in (Reason.IDLE_TIMEOUT, Reason.WORKER_LOST)
            await one.status("b0", WorkerStatus.SUSPECT, WorkerStatus.EJECTED, WorkerStatus.GONE)
            answer, error = await one.outcome(intent(prompt(40)))
            assert error is not None
            assert error.status == 503
            assert answer.record.phase is Phase.REJECTED
        finally:
            process.send_signal(signal.SIGCONT)
        await one.status("b0", WorkerStatus.READY)
        assert (await one.ask(intent(prompt(40)))).tokens() == expected(prompt(40), intent().sampling)


def _hang(phase: str, for_s: float) -> Script:
    return Script.model_validate({"faults": [{"kind": "hang", "phase": phase, "for_s": for_s, "times": 1}]})
