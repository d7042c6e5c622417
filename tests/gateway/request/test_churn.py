"""Workers that join, leave, drain and break all the time under load, and answers that move between them (B-42)."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.cluster.client import WorkerLostError
from gateway.cluster.cluster import UnknownWorkerError
from gateway.cluster.states import WorkerStatus
from gateway.request.errors import REJECTIONS, Reason
from gateway.request.phase import Phase
from proto.worker import Role
from tests.gateway.fleet import Fleet, config, expected, fleet, intent, prompt, until

ROLES = {
    "p0": Role.PREFILL,
    "p1": Role.PREFILL,
    "p2": Role.PREFILL,
    "d0": Role.DECODE,
    "d1": Role.DECODE,
    "b0": Role.BOTH,
}
ENGINE: dict[str, Any] = {"profile": "toy", "kv_blocks": 128, "kv_lease_s": 3.0}
#: Shorter than the hangs below; what is only slow must not end by them, or everything does.
DEADLINES = {"prefill_s": 4.0, "first_token_s": 4.0, "idle_s": 4.0, "queue_s": 20.0, "reserve_s": 4.0}
#: So many at a time, however fast the machine is.
REQUESTS, CLIENTS = 240, 32
REASONS = REJECTIONS | {
    Reason.WORKER_LOST,
    Reason.PREFILL_FAILED,
    Reason.PREFILL_TIMEOUT,
    Reason.HANDOFF_FAILED,
    Reason.DECODE_FAILED,
    Reason.FIRST_TOKEN_TIMEOUT,
    Reason.IDLE_TIMEOUT,
}
FAULTS: list[dict[str, Any]] = [
    {"kind": "hang", "phase": "prefill", "for_s": 6.0, "probability": 0.1},
    {"kind": "hang", "phase": "transfer", "for_s": 6.0, "probability": 0.1, "where": {"leg": "pull"}},
    {"kind": "hang", "phase": "decode", "for_s": 6.0, "probability": 0.05, "after_tokens": 4},
    {"kind": "fail", "after_tokens": 0, "probability": 0.1},
    {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "probability": 0.1, "where": {"leg": "pull"}},
    {"kind": "handoff_missing", "probability": 0.1},
    {"kind": "refuse", "fault": "overloaded", "probability": 0.1},
]
#: Whatever may move does, and often.
MOVES = {"classes": {"default": {"on_overrun": ["move"]}}, "balance": {"above": 0.2, "spread": 0.1}}


def _length(seed: int) -> int:
    """Some long enough to be worth a move."""
    return 300 if seed % 4 == 1 else 1 + seed % 40


async def churn(one: Fleet, dice: random.Random, over: asyncio.Event) -> None:
    """Every so often a worker goes without a word and comes back in a new epoch, drains for a while, or starts to misbehave.

    On a slow machine less often: there is always somebody who could serve.
    """

    def most_are_ready() -> bool:
        ready = sum(worker.status is WorkerStatus.READY for worker in one.cluster.snapshot().workers)
        return ready >= len(ROLES) - 1

    while not over.is_set():
        await until(lambda: most_are_ready() or over.is_set())
        await asyncio.sleep(dice.uniform(0.05, 0.25))
        name = dice.choice(list(ROLES))
        turn = dice.random()
        if turn < 0.35 and name in one.members:
            await one.members.pop(name).stop()
            await asyncio.sleep(dice.uniform(0.0, 0.2))
            await one.add(name, ROLES[name], **ENGINE)
        elif turn < 0.7 and name in one.members:
            with suppress(UnknownWorkerError, WorkerLostError, TimeoutError):
                await one.cluster.drain(name)
                await asyncio.sleep(dice.uniform(0.0, 0.5))
                await one.cluster.drain(name, resume=True)
        elif name in one.members:
            faults = dice.sample(FAULTS, 2) if dice.random() < 0.6 else []
            one.members[name].engine.injector.use(
                Script.model_validate({"seed": dice.random() * 1e6 // 1, "faults": faults})
            )


@pytest.mark.slow
async def test_b42_every_request_ends_in_time_with_an_outcome_and_the_right_text() -> None:
    dice, outcomes = random.Random(7), Counter[str]()
    settings = config(
        deadlines=DEADLINES, routing={"lease_margin_s": 0.2}, health={"probe_timeout_s": 4.0}, policy=MOVES
    )
    async with fleet(tuple(ROLES.items()), settings=settings, **ENGINE) as one:

        async def client(seed: int) -> None:
            wanted = intent(prompt(10 + seed % 200, seed), n=1 + (seed % 7 == 0), max_tokens=_length(seed))
            if seed % 5 == 0:
                task = asyncio.create_task(one.outcome(wanted))
                await asyncio.sleep(dice.random() * 0.3)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return
            answer, error = await one.outcome(wanted)
            outcomes[error.reason if error else "done"] += 1
            for choice in range(wanted.n):
                told, truth = answer.tokens(choice), expected(wanted.prompts[0], wanted.sampling)
                assert told == (truth if error is None else truth[: len(told)])
            assert error is None or error.reason in REASONS

        over, room = asyncio.Event(), asyncio.Semaphore(CLIENTS)

        async def in_turn(seed: int) -> None:
            async with room:
                await client(seed)

        trouble = asyncio.create_task(churn(one, dice, over))
        async with asyncio.TaskGroup() as clients:
            for seed in range(REQUESTS):
                clients.create_task(in_turn(seed))
        over.set()
        await trouble
        assert len(one.watcher.records) == REQUESTS
        assert all(record.phase.final for record in one.watcher.records)
        assert outcomes["done"] > REQUESTS / 10, outcomes
        for member in one.members.values():
            member.engine.injector.use(Script())
        await one.settled(8.0)  # tickets that a fault withheld end with their lease
        assert not [record for record in one.watcher.records if record.reason is Reason.INTERNAL]
        assert one.lifecycle.overruns.moves
        assert {Phase.DONE, Phase.CANCELLED} <= {record.phase for record in one.watcher.records}
