"""Several prompts in one request are admitted together, or none of them is (over real workers)."""

import asyncio

import pytest

from decode_pool.ledger import Load
from gateway.cluster.states import WorkerStatus
from gateway.policy.fairness.claim import Claim
from gateway.policy.fairness.queue import FairQueue
from gateway.request.errors import Reason
from gateway.request.phase import Phase
from proto.reservation import Refusal, Reservation, ReserveRequest
from proto.worker import Role
from tests.gateway.fleet import FOUR, PAIR, SOLO, Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S

#: Tokens of an answer that takes, with its prompt of 40, 5 of a worker's blocks under the rule that believes max_tokens.
WIDE = 40
DECLARED = {"policy": {"rule": "declared"}}


def held(one: Fleet, name: str) -> int:
    return one.members[name].worker.decode.ledger.reserved_blocks


@pytest.mark.parametrize("n", [1, 2])
async def test_all_of_them_are_answered(n: int) -> None:
    async with fleet(FOUR) as one:
        wanted = intent(*[prompt(40 + seed, seed) for seed in range(3)], n=n)
        answer = await one.ask(wanted)
        for choice in range(3 * n):
            assert answer.tokens(choice) == expected(wanted.prompts[choice // n], wanted.sampling)
        assert answer.record.phase is Phase.DONE
        await one.settled()


async def test_nothing_is_held_or_computed_while_one_of_them_waits() -> None:
    """A part that is granted must not lie idle, and a stream must not begin that a later refusal would break."""
    async with fleet(SOLO, kv_blocks=12, settings=config(**DECLARED)) as one:
        ledger, engine = one.members["b0"].worker.decode, one.members["b0"].engine
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 40, 30.0))
        assert isinstance(foreign, Reservation)
        task = asyncio.create_task(one.outcome(intent(prompt(40), prompt(40, 1), max_tokens=WIDE)))
        await until(lambda: one.cluster.snapshot().queued == 1, 30.0)
        assert engine.stats().prompt_tokens == 0
        assert held(one, "b0") == foreign.blocks
        ledger.ledger.release(foreign.reservation_id)
        answer, error = await task
        assert error is None, error
        assert answer.tokens(1) == expected(prompt(40, 1), intent(max_tokens=WIDE).sampling)
        await one.settled(30.0)


async def test_a_worker_that_refuses_the_second_gets_the_first_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """This gateway does not know what another has taken: the worker says so, and the whole request goes on waiting.

    When there is room the worker says so, too: the next state is far away."""
    slow = config(**DECLARED, health={"watch_interval_s": 10 * HANG_S, "stale_after_s": 20 * HANG_S})
    async with fleet(SOLO, kv_blocks=12, settings=slow) as one:
        ledger, engine = one.members["b0"].worker.decode, one.members["b0"].engine
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 40, 30.0))
        assert isinstance(foreign, Reservation)
        given_back: list[str] = []
        release = ledger.ledger.release

        def watched(reservation_id: str) -> object:
            given_back.append(reservation_id)
            return release(reservation_id)

        monkeypatch.setattr(ledger.ledger, "release", watched)
        task = asyncio.create_task(one.outcome(intent(prompt(40), prompt(40, 1), max_tokens=WIDE)))
        await until(lambda: len(given_back) > 0, 30.0)
        assert engine.stats().prompt_tokens == 0
        release(foreign.reservation_id)
        _, error = await task
        assert error is None, error
        await one.settled(30.0)


async def test_what_could_never_fit_together_is_refused_at_once() -> None:
    async with fleet(SOLO, kv_blocks=8, settings=config(**DECLARED)) as one:
        answer, error = await one.outcome(intent(prompt(40), prompt(40, 1), max_tokens=WIDE))
        assert error is not None
        assert (error.reason, error.status, answer.pieces) == (Reason.KV_CAPACITY, 400, [])
        assert (error.numbers["prompts"], error.numbers["blocks_total"]) == (2, 8)
        assert "Send fewer" in error.message
        alone, error = await one.outcome(intent(prompt(40), max_tokens=WIDE))
        assert error is None
        assert len(alone.tokens()) > 0
        await one.settled(30.0)


async def test_what_a_worker_that_is_away_could_take_may_be_sent_again() -> None:
    async with fleet((*PAIR, ("d1", Role.DECODE)), kv_blocks=8, settings=config(**DECLARED)) as one:
        wanted = [intent(prompt(40), prompt(40, seed), max_tokens=WIDE) for seed in (1, 2)]
        await one.cluster.drain("d1")
        await one.status("d1", WorkerStatus.DRAINING)
        _, error = await one.outcome(wanted[0])
        assert error is not None
        assert (error.reason, error.status, error.numbers["blocks_total"]) == (Reason.NO_DECODE_WORKER, 503, 8)
        assert error.retry_after_s is not None
        await one.cluster.drain("d1", resume=True)
        await one.status("d1", WorkerStatus.READY)
        _, error = await one.outcome(wanted[1])
        assert error is None
        await one.settled(30.0)


async def test_by_the_forecast_too_no_part_of_what_could_never_fit_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(SOLO, kv_blocks=12) as one:
        ledger = one.members["b0"].worker.decode.ledger
        asked, reserve = list[str](), ledger.reserve

        def watched(request: ReserveRequest, load: Load, *, others_first: bool = False) -> Reservation | Refusal:
            asked.append(request.request_id)
            return reserve(request, load, others_first=others_first)

        monkeypatch.setattr(ledger, "reserve", watched)
        # until its forecast is known, nobody is tried beyond the room that is
        await until(lambda: (seen := one.cluster.worker("b0")) is not None and seen.headroom_blocks is not None)
        _, error = await one.outcome(intent(prompt(60), prompt(60, 1), max_tokens=60))
        assert error is not None
        assert (error.reason, error.status, asked) == (Reason.KV_CAPACITY, 400, [])
        await one.settled(30.0)


@pytest.mark.slow
async def test_many_such_requests_never_wait_for_each_others_kv() -> None:
    async with fleet((*PAIR, ("d1", PAIR[1][1])), kv_blocks=12, settings=config(**DECLARED)) as one:
        wanted = [intent(prompt(40, seed), prompt(41, seed), prompt(42, seed), max_tokens=WIDE) for seed in range(8)]
        for each, (answer, error) in zip(
            wanted, await asyncio.gather(*[one.outcome(each) for each in wanted]), strict=True
        ):
            assert error is None, error
            assert [answer.tokens(at) for at in range(3)] == [expected(p, each.sampling) for p in each.prompts]
        await one.settled(30.0)


async def test_a_client_that_leaves_while_they_wait_leaves_nothing() -> None:
    async with fleet(SOLO, kv_blocks=12, settings=config(**DECLARED)) as one:
        ledger = one.members["b0"].worker.decode
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 40, 30.0))
        assert isinstance(foreign, Reservation)
        wanted = intent(prompt(40), prompt(40, 1), max_tokens=WIDE)
        record = await one.leave_in(wanted, Phase.QUEUED)
        assert record.phase is Phase.CANCELLED
        assert one.cluster.integrity().queued == 0
        ledger.ledger.release(foreign.reservation_id)
        await one.settled(30.0)


async def test_a_tenant_pays_once_for_a_prompt_that_is_tried_again() -> None:
    """The retry asks for a place by itself, beside the bill of the whole request."""
    fails = {"faults": [{"kind": "fail", "after_tokens": 0, "where": {"leg": "local"}, "times": 1}]}
    async with fleet((*SOLO, ("b1", Role.BOTH)), scripts={"b0": fails, "b1": fails}) as one:
        answer = await one.ask(intent(prompt(40), prompt(40, 1), ignore_eos=True))
        assert answer.record.retries > 0
        line = one.lifecycle._shared.desk._line
        assert isinstance(line, FairQueue)
        assert line.open_bills == 0
        assert line.received(Claim(klass="default")) == pytest.approx(line.rules.cost(80, 16))
        await one.settled(30.0)
