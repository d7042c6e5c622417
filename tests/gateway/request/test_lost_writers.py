"""A writer that is lost while its KV is being pulled: the reader's engine may wait for ever, so nobody waits for it."""

import asyncio
from typing import Any

import pytest

from gateway.cluster.states import WorkerStatus
from gateway.request.intent import Intent
from gateway.request.phase import Phase
from proto.reservation import ReserveRequest
from proto.worker import Role
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import PAIR, Answer, Fleet, expected, fleet, intent, prompt, until

THREE = (("p0", Role.PREFILL), ("p1", Role.PREFILL), ("d0", Role.DECODE))


#: The first pull into d0 does not end by itself, as one from a dead writer may not.
STUCK: dict[str, Any] = {
    "d0": {"faults": [{"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}, "times": 1}]}
}


async def pulling(one: Fleet, wanted: Intent) -> tuple["asyncio.Task[Answer]", str, Hold]:
    """The request, whose KV it waits for, and its pull."""
    pull = Hold(one.members["d0"].engine.injector)
    task = asyncio.create_task(one.ask(wanted))
    await pull.begun.wait()
    await until(lambda: one.watcher.path_of(wanted.request_id)[-1:] == [Phase.DECODING])
    writer = next(name for name, member in one.members.items() if member.held["tickets"])
    return task, writer, pull


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("length", [40, 48], ids=["carry", "replay"])
@pytest.mark.parametrize("roles", [PAIR, THREE], ids=["alone", "one of two"])
async def test_a_pull_from_a_lost_writer_fails_at_once(roles: Any, length: int, n: int) -> None:
    """Not after `first_token_s`, which is two minutes, nor with the pull, which never ends."""
    async with fleet(roles, scripts=STUCK) as one:
        wanted = intent(prompt(length), max_tokens=20, n=n)
        task, writer, pull = await pulling(one, wanted)
        await one.members.pop(writer).stop()
        answer = await task  # though the pull goes on
        for choice in range(n):
            assert answer.tokens(choice) == expected(prompt(length), wanted.sampling)
        # With nobody else to prefill it, the policy's way out is the second: locally.
        assert answer.record.retries == (2 if roles is PAIR else 1)
        assert answer.record.reserved_blocks == one.members["d0"].worker.decode.ledger.account.needed(_asked(wanted))
        assert answer.record.path == ("local" if roles is PAIR else "remote")
        assert "lost while its KV was being pulled" in one.watcher.retries[0]
        assert not one.members["d0"].idle  # the blocks belong to the pull until it ends
        pull.let_go()
        await one.settled()


def _asked(wanted: Intent) -> ReserveRequest:
    tokens, growth = len(wanted.prompts[0]), wanted.n * wanted.sampling.max_tokens
    return ReserveRequest("g", "r", tokens, growth, 1.0, wanted.n)


async def test_a_writer_that_left_in_order_had_been_read() -> None:
    """It waits for its tickets: the first token is on its way, and nothing is computed twice."""
    async with fleet(THREE, scripts=STUCK) as one:
        task, writer, pull = await pulling(one, intent(prompt(40), max_tokens=20))
        await one.cluster.drain(writer)
        await one.status(writer, WorkerStatus.DRAINING)
        for attachment in one.members[writer].worker.decode._attachments:
            attachment.outbox.close()  # the connection ends; the engine is still there to be read
        await until(lambda: (writer, WorkerStatus.GONE) in [(name, now) for name, _, now, _ in one.watcher.workers])
        pull.let_go()
        answer = await task
        assert answer.tokens() == expected(prompt(40), intent(max_tokens=20).sampling)
        assert answer.record.retries == 0
        await one.settled()


async def test_a_writer_that_is_lost_after_its_kv_was_read_is_nobodys_concern() -> None:
    async with fleet(THREE, profile="toy") as one:
        wanted = intent(prompt(40), max_tokens=100, ignore_eos=True)
        task = asyncio.create_task(one.ask(wanted))
        await until(lambda: len(one.watcher.handoffs) == 1)
        await one.members.pop(one.watcher.handoffs[0].prefill_worker).stop()
        answer = await task
        assert len(answer.tokens()) == 100
        assert answer.record.retries == 0
        await one.settled()
