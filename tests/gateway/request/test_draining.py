"""Workers that take no more answers: what they run goes on elsewhere, and they need not wait for it (R-26)."""

import asyncio
import signal
from functools import partial
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.cluster.states import WorkerStatus
from gateway.policy.admission.drain import AT_ONCE
from gateway.request.intent import Intent
from gateway.request.moving import Outcome, Why
from proto.worker import Role
from tests.engine.simulated.hold import before_each_step
from tests.gateway.fleet import Answer, Fleet, config, expected, fleet, intent, prompt, until
from tests.gateway.request.sending import DUO
from tests.waiting import HANG_S

ENGINE: dict[str, Any] = {"profile": "toy"}
TOKENS = 400
#: Between two steps of an engine, until all are let go: no answer ends by itself before that.
STEP_S = 0.01


def settings(drain: str = "move") -> Any:
    policy = {"rule": "declared", "drain": drain, "classes": {"default": {"on_overrun": []}}}
    return config(policy=policy, routing={"on_no_prefill": "local"}, health={"watch_interval_s": 0.02})


def long(seed: int = 0) -> Intent:
    return intent(prompt(40, seed), max_tokens=TOKENS, ignore_eos=True)


class Drained:
    """Answers that begin on d0, which is drained then. The engines are slow until the answers are waited for."""

    def __init__(self, one: Fleet, wanted: list[Intent]) -> None:
        self.one, self.wanted = one, wanted
        self.tasks: list[asyncio.Task[Answer]] = []
        self._slow = True
        for member in one.members.values():
            before_each_step(member.engine.injector, self._pace)

    async def _pace(self) -> None:
        if self._slow:
            await asyncio.sleep(STEP_S)

    async def begun(self) -> "Drained":
        others = [name for name in self.one.members if name != "d0"]
        for name in others:
            await self.one.cluster.drain(name)
        self.tasks = [asyncio.create_task(self.one.ask(each)) for each in self.wanted]
        await self.one.begun(*self.wanted)
        for name in others:
            await self.one.cluster.drain(name, resume=True)
            await self.one.status(name, WorkerStatus.READY)
        return self

    async def drain(self) -> None:
        await self.one.cluster.drain("d0")

    @property
    def source_is_rid_of_them(self) -> bool:
        return self.one.members["d0"].idle

    def let_go(self) -> None:
        self._slow = False

    async def answers(self) -> list[Answer]:
        """All of them, as one worker would have given them."""
        self.let_go()
        answers = await asyncio.gather(*self.tasks)
        for each, answer in zip(self.wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
        await self.one.settled(HANG_S)
        return answers


def moves(one: Fleet) -> dict[tuple[str, str], int]:
    return dict(one.lifecycle.overruns.moves)


async def test_a_worker_that_drains_hands_its_answers_over_and_is_idle_while_they_run() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        assert not one.cluster.snapshot().pairs  # nobody reads from anybody until there is something to read
        drained = await Drained(one, [long(seed) for seed in range(2 * AT_ONCE)]).begun()
        await drained.drain()
        await until(lambda: drained.source_is_rid_of_them)
        assert not any(task.done() for task in drained.tasks)
        assert [(pair.prefill_worker, pair.decode_worker) for pair in one.cluster.snapshot().pairs] == [("d0", "d1")]
        answers = await drained.answers()
        assert {answer.record.decode_worker for answer in answers} == {"d1"}
        assert moves(one) == {(Why.DRAIN, Outcome.MOVED): len(answers)}
        assert all(answer.record.kv_bytes > 0 for answer in answers)  # read, and not computed again
        (decision,) = one.lifecycle.controller.decisions.of(answers[0].record.request_id)
        (look,) = [look for look in decision.looks if look.what == "move"]
        assert look.why == "drain, by transfer: moved"
        assert {"left_s", "move_bytes", "move_s", "recompute_s"} <= set(look.numbers)


async def test_a_change_of_role_is_no_different() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long(seed) for seed in range(2)]).begun()
        await one.cluster.set_role("d0", Role.PREFILL)
        await until(lambda: drained.source_is_rid_of_them)
        answers = await drained.answers()
        assert {answer.record.decode_worker for answer in answers} == {"d1"}


async def test_what_must_not_move_ends_where_it_is() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        seeded = intent(prompt(40, 1), max_tokens=TOKENS, ignore_eos=True, seed=1, temperature=1.0)
        wanted = [long(), seeded]
        drained = await Drained(one, wanted).begun()
        await drained.drain()
        await until(lambda: moves(one))
        answers = await drained.answers()
        assert [answer.record.decode_worker for answer in answers] == ["d1", "d0"]


async def test_where_no_other_worker_has_room_they_wait_until_one_has() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long(seed) for seed in range(2)]).begun()
        other = one.members["d1"].engine
        other.injector.use(Script.model_validate({"faults": [{"kind": "full"}]}))
        await drained.drain()
        await until(lambda: moves(one).get((Why.DRAIN, Outcome.REFUSED)) or _full(one, "d1"))
        assert not drained.source_is_rid_of_them
        other.injector.use(Script())
        await until(lambda: drained.source_is_rid_of_them)
        answers = await drained.answers()
        assert {answer.record.decode_worker for answer in answers} == {"d1"}


def _idle(one: Fleet, name: str) -> bool:
    return one.members[name].idle


def _full(one: Fleet, name: str) -> bool:
    worker = one.cluster.worker(name)
    return worker is not None and worker.blocks_free <= 0


async def test_where_all_drain_nothing_moves() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long()]).begun()
        await one.cluster.drain("d1")
        await one.status("d1", WorkerStatus.DRAINING)
        await drained.drain()
        await one.status("d0", WorkerStatus.DRAINING)
        (answer,) = await drained.answers()
        assert (answer.record.decode_worker, moves(one)) == ("d0", {})


async def test_with_wait_they_end_where_they_are() -> None:
    async with fleet(DUO, settings=settings("wait"), **ENGINE) as one:
        drained = await Drained(one, [long()]).begun()
        await drained.drain()
        await one.status("d0", WorkerStatus.DRAINING)
        (answer,) = await drained.answers()
        assert (answer.record.decode_worker, moves(one)) == ("d0", {})
        assert not one.cluster.snapshot().pairs


async def test_an_answer_leaves_every_worker_that_drains() -> None:
    """It arrives once for want of room, and for a drain as often as it takes: a fleet is restarted one worker after the other."""
    trio = (*DUO, ("d2", Role.DECODE))
    async with fleet(trio, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long()]).begun()
        at = "d0"
        for _ in range(4):
            await one.cluster.drain(at)
            await until(partial(_idle, one, at))
            await one.cluster.drain(at, resume=True)
            await one.status(at, WorkerStatus.READY)
            at = one.accounts[drained.wanted[0].request_id].decode_worker
        (answer,) = await drained.answers()
        assert answer.record.moves == 4
        assert moves(one) == {(Why.DRAIN, Outcome.MOVED): 4}


async def test_clients_that_leave_meanwhile_leave_nothing_behind() -> None:
    async with fleet(DUO, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long(seed) for seed in range(2 * AT_ONCE)]).begun()
        await drained.drain()
        await until(lambda: any(each.leaving for each in one.lifecycle.overruns.growing()))
        for task in drained.tasks:
            task.cancel()
        await asyncio.gather(*drained.tasks, return_exceptions=True)
        await one.settled(HANG_S)


async def test_a_target_that_dies_meanwhile_is_replaced() -> None:
    trio = (*DUO, ("d2", Role.DECODE))
    async with fleet(trio, settings=settings(), **ENGINE) as one:
        drained = await Drained(one, [long(seed) for seed in range(AT_ONCE)]).begun()
        await one.cluster.drain("d2")
        await one.status("d2", WorkerStatus.DRAINING)
        target = one.members["d1"]
        hang = {"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}}
        target.engine.injector.use(Script.model_validate({"faults": [hang]}))
        await drained.drain()
        await until(lambda: target.worker.decode.gate.under_way == AT_ONCE)
        await one.cluster.drain("d2", resume=True)
        target.engine._die("scripted")
        await until(lambda: drained.source_is_rid_of_them)
        await until(lambda: moves(one).get((Why.DRAIN, Outcome.LOST)) == AT_ONCE)
        drained.let_go()
        for each, answer in zip(drained.wanted, await asyncio.gather(*drained.tasks), strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert answer.record.decode_worker == "d2"
        await until(lambda: one.cluster.integrity().idle)


@pytest.mark.slow
async def test_a_process_that_is_told_to_end_ends_while_its_answers_go_on() -> None:
    """Its limit on waiting cuts nothing off: the answers would have taken minutes."""
    async with fleet((("d1", Role.DECODE),), settings=settings(), profile="toy", speedup=1.0) as one:
        await one.cluster.drain("d1")
        ending = await one.spawn("d0", Role.DECODE, speedup=0.005)
        await one.status("d0", WorkerStatus.READY)
        wanted = [long(seed) for seed in range(2)]
        tasks = [asyncio.create_task(one.ask(each)) for each in wanted]
        await one.begun(*wanted)
        await one.cluster.drain("d1", resume=True)
        await one.status("d1", WorkerStatus.READY)
        ending.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(ending.wait(), HANG_S) == 0
        for each, answer in zip(wanted, await asyncio.gather(*tasks), strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
            assert answer.record.decode_worker == "d1"
        await one.settled(HANG_S)
