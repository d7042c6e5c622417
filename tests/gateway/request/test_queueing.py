"""Waiting for KV: order, limits, deadlines, and refusals that explain themselves."""

import asyncio
from dataclasses import replace

import pytest

from engine.simulated.faults import Script
from gateway.cluster.client import WorkerClient
from gateway.policy.bid import Bid
from gateway.policy.need import Need
from gateway.policy.prefix import PrefixKey
from gateway.request.desk import Desk
from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from gateway.request.phase import Phase
from proto.reservation import Refusal, Reservation, ReserveRequest
from proto.worker import Role
from tests.gateway.fleet import PAIR, SOLO, Answer, Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S

TWO_SOLO = (("b0", Role.BOTH), ("b1", Role.BOTH))


async def occupied(one: Fleet, tasks: asyncio.TaskGroup, count: int = 1, max_tokens: int = 80) -> None:
    """Requests that fill a worker of 8 blocks, one each."""
    for seed in range(count):
        tasks.create_task(one.ask(intent(prompt(40, seed), max_tokens=max_tokens, ignore_eos=True)))
    await until(lambda: one.cluster.integrity().sequences == count)


async def test_b55_what_never_fits_is_refused_at_once_past_a_full_queue() -> None:
    async with fleet(PAIR, kv_blocks=8, profile="toy") as one, asyncio.TaskGroup() as tasks:
        await occupied(one, tasks)
        waiting = tasks.create_task(one.ask(intent(prompt(41), max_tokens=80)))
        await until(lambda: one.cluster.snapshot().queued == 1)
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40), max_tokens=200))
        assert (caught.value.reason, caught.value.status) == (Reason.KV_CAPACITY, 400)
        assert caught.value.numbers["blocks_total"] == 8
        assert caught.value.numbers["blocks_needed"] > 8
        assert not waiting.done()
    assert waiting.result().record.phase is Phase.DONE


async def test_invariant_1_nothing_is_prefilled_that_cannot_be_placed() -> None:
    async with fleet(PAIR, kv_blocks=8, profile="toy") as one, asyncio.TaskGroup() as tasks:
        await occupied(one, tasks)
        before = one.members["p0"].engine.stats().prompt_tokens
        second = tasks.create_task(one.ask(intent(prompt(41), max_tokens=80)))
        await until(lambda: one.cluster.snapshot().queued == 1)
        await asyncio.sleep(0.05)
        assert one.members["p0"].engine.stats().prompt_tokens == before
        await second
        assert one.members["p0"].engine.stats().prompt_tokens == before + 41


async def test_first_come_first_served() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one:
        order: list[int] = []

        async def ask(number: int) -> None:
            await one.ask(intent(prompt(40, number), max_tokens=60 + number, ignore_eos=True))
            order.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(ask(number))
                await asyncio.sleep(0.002)
        assert order == sorted(order)
        await one.settled()


@pytest.mark.slow
async def test_many_more_than_fit_are_all_served() -> None:
    async with fleet(PAIR, kv_blocks=24, profile="toy") as one:
        wanted = [intent(prompt(20 + seed, seed), max_tokens=20) for seed in range(60)]
        answers = await asyncio.gather(*[one.ask(each) for each in wanted])
        for each, answer in zip(wanted, answers, strict=True):
            assert answer.tokens() == expected(each.prompts[0], each.sampling)
        stats = one.members["d0"].engine.stats()
        assert stats.preemptions == 0  # what was reserved was enough
        await one.settled()


async def test_room_that_comes_free_as_the_first_in_line_leaves_goes_to_the_next() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one, asyncio.TaskGroup() as tasks:
        await occupied(one, tasks)
        leaving = intent(prompt(41), max_tokens=80)
        left = tasks.create_task(one.ask(leaving))
        await until(lambda: one.cluster.snapshot().queued == 1)
        staying = tasks.create_task(one.ask(intent(prompt(42), max_tokens=80)))
        await until(lambda: one.cluster.snapshot().queued == 2)
        run = next(task for task in asyncio.all_tasks() if task.get_name() == f"request-{leaving.request_id}")
        worker = one.cluster.worker("b0")
        assert worker is not None
        assert worker.state is not None
        run.cancel()
        # Before the cancelled task has run: its place in line is empty, and the news must not stumble over it.
        worker.heard(replace(worker.state, blocks_used=0, blocks_reserved=0))
        await staying
        await left


async def test_a_full_queue_refuses_with_429_and_numbers() -> None:
    settings = config(admission={"max_queued": 2})
    async with fleet(SOLO, kv_blocks=8, profile="toy", settings=settings) as one, asyncio.TaskGroup() as tasks:
        await occupied(one, tasks)
        for seed in range(2):
            tasks.create_task(one.ask(intent(prompt(41, seed), max_tokens=80)))
        await until(lambda: one.cluster.snapshot().queued == 2)
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(42), max_tokens=80))
        error = caught.value
        assert (error.reason, error.status) == (Reason.QUEUE_FULL, 429)
        assert error.numbers["waiting"] == 2
        assert error.numbers["blocks_total"] == 8
        assert error.retry_after_s is not None
        assert error.retry_after_s >= 1


async def test_waiting_too_long_is_503_with_numbers() -> None:
    settings = config(deadlines={"queue_s": 0.2})
    async with fleet(SOLO, kv_blocks=8, profile="toy", settings=settings) as one:
        one.members["b0"].engine.injector.use(Script.model_validate({"faults": [{"kind": "full"}]}))
        await until(lambda: (seen := one.seen("b0")) is not None and seen.blocks_used == seen.blocks_total)
        with pytest.raises(RequestError) as caught:
            await asyncio.gather(*[one.ask(intent(prompt(41, seed), max_tokens=80)) for seed in range(4)])
        error = caught.value
        assert (error.reason, error.status) == (Reason.QUEUE_TIMEOUT, 503)
        assert error.numbers["waited_s"] >= 0.2
        assert error.retry_after_s
        assert error in one.watcher.refusals


@pytest.mark.parametrize(("rule", "shares"), [("declared", {4}), ("forecast", {3, 4, 5})])
async def test_the_worker_with_the_most_free_kv_is_chosen(rule: str, shares: set[int]) -> None:
    """By forecast, a worker's own word may come between two grants and count them higher than their mean."""
    async with fleet(TWO_SOLO, profile="toy", settings=config(policy={"rule": rule})) as one:
        async with asyncio.TaskGroup() as tasks:
            for seed in range(8):
                tasks.create_task(one.ask(intent(prompt(40, seed), max_tokens=200, ignore_eos=True)))
            await until(lambda: one.cluster.integrity().reservations == 8)
            assert {worker.lease_reservations for worker in one.cluster.snapshot().workers} <= shares
        await one.settled()


async def test_b54_another_gateways_reservations_count_too() -> None:
    """A gateway that knows nothing of them asks, is refused with the truth, and waits."""
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one:
        ledger = one.members["b0"].worker.decode
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 80, 30.0))
        assert isinstance(foreign, Reservation)
        task = asyncio.create_task(one.ask(intent(prompt(40))))
        await until(lambda: one.cluster.snapshot().queued == 1)
        await asyncio.sleep(0.3)
        assert not task.done()
        ledger.ledger.release(foreign.reservation_id)
        answer = await task
        assert answer.tokens() == expected(prompt(40), intent().sampling)


async def test_more_answers_than_slots_never_fit_and_the_refusal_says_so() -> None:
    async with fleet(PAIR, max_num_seqs=2) as one:
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40), n=3))
        assert caught.value.reason is Reason.KV_CAPACITY
        assert "Lower n" in caught.value.message


async def test_prompts_and_limits_beyond_the_window_are_refused() -> None:
    async with fleet(PAIR, max_model_len=128) as one:
        for wanted in (intent(prompt(128)), intent(prompt(500)), intent(prompt(100), max_tokens=29)):
            with pytest.raises(RequestError) as caught:
                await one.ask(wanted)
            assert (caught.value.reason, caught.value.status) == (Reason.CONTEXT_LENGTH, 400)
        answer = await one.ask(intent(prompt(127), max_tokens=1))
        assert len(answer.tokens()) == 1
        assert len((await one.ask(intent(prompt(100), max_tokens=28, ignore_eos=True))).tokens()) == 28
        assert all(member.engine.stats().steps <= 40 for member in one.members.values())


async def test_a_draining_gateway_refuses_new_requests_and_finishes_old_ones() -> None:
    async with fleet(PAIR, profile="toy") as one, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(one.ask(intent(prompt(40), max_tokens=60, ignore_eos=True)))
        await until(lambda: one.cluster.integrity().sequences == 1)
        one.lifecycle.refuse_new()
        with pytest.raises(RequestError) as caught:
            await one.ask(intent(prompt(40)))
        assert (caught.value.reason, caught.value.status) == (Reason.DRAINING, 503)
        assert caught.value.numbers == {"in_flight": 1, "drain_s": one.config.drain_s}
        assert await one.lifecycle.idle(HANG_S)
        assert len((await running).tokens()) == 60


async def test_what_is_not_complete_when_a_gateway_has_waited_long_enough_is_told_so() -> None:
    """And its client is not said to have gone away."""
    async with fleet(PAIR, profile="toy") as one, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(refused(one, intent(prompt(40), max_tokens=4000, ignore_eos=True)))
        await until(lambda: one.cluster.integrity().sequences == 1)
        one.lifecycle.refuse_new()
        assert not await one.lifecycle.idle(0.0)
        assert await one.lifecycle.cut(HANG_S)
        error, record = await asked, one.watcher.records[-1]
        assert (error.reason, error.status, record.phase) == (Reason.DRAINING, 503, Phase.FAILED)
        assert 0 < record.completion_tokens < 4000


async def refused(one: Fleet, wanted: Intent) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await one.ask(wanted)
    return caught.value


async def test_a_prompt_that_a_worker_sent_back_keeps_its_place_in_a_full_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its turn had come, but the worker had news of its own: it is not told that the queue is full."""
    async with fleet(SOLO, kv_blocks=8, settings=config(admission={"max_queued": 1})) as one:
        ledger, reserve = one.members["b0"].worker.decode, WorkerClient.reserve
        asked, others_wait = asyncio.Event(), asyncio.Event()

        async def slowly(self: WorkerClient, request: ReserveRequest, timeout_s: float) -> Reservation | Refusal:
            if not asked.is_set():
                asked.set()
                await others_wait.wait()
            return await reserve(self, request, timeout_s)

        monkeypatch.setattr(WorkerClient, "reserve", slowly)
        first = asyncio.create_task(one.outcome(intent(prompt(40), max_tokens=80)))
        await asked.wait()
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 80, 30.0))
        assert isinstance(foreign, Reservation)
        others = [asyncio.create_task(one.outcome(intent(prompt(41, seed), max_tokens=80))) for seed in range(3)]
        await until(lambda: len(one.watcher.refusals) > 0)
        others_wait.set()
        await asyncio.sleep(0.5)
        assert not first.done()
        ledger.ledger.release(foreign.reservation_id)
        _, error = await first
        assert error is None, error
        refused = [error.reason for _, error in await asyncio.gather(*others) if error is not None]
        assert refused  # the place of the one that came back was not theirs
        assert set(refused) == {Reason.QUEUE_FULL}
        await one.settled()


async def test_when_one_comes_back_to_a_full_queue_the_last_in_line_goes() -> None:
    async with fleet((), settings=config(admission={"max_queued": 2})) as one:
        desk = Desk(one.cluster, one.config, one.lifecycle.clock)
        desk._final = lambda route: False  # type: ignore[method-assign]  # somebody is about to come back

        def bid() -> Bid:
            tokens = prompt(40)
            return Bid("r", Need(len(tokens), 8, 1), PrefixKey(tokens, ""), desk.arrive())

        returning, second, third = bid(), bid(), bid()
        returning.asks = 1
        waiting = [asyncio.create_task(desk._turn(each)) for each in (second, third)]
        await asyncio.sleep(0)
        back = asyncio.create_task(desk._turn(returning))
        await asyncio.sleep(0.01)
        assert [task.done() for task in (back, *waiting)] == [False, False, True]
        with pytest.raises(RequestError) as caught:
            await waiting[1]
        assert caught.value.reason is Reason.QUEUE_FULL
        assert caught.value.numbers["waiting"] == 2
        for task in (back, waiting[0]):
            task.cancel()
        await asyncio.gather(back, waiting[0], return_exceptions=True)
        assert one.cluster.integrity().queued == 0


async def test_a_gateway_that_takes_everything_anew_starves_no_other() -> None:
    """It hears of its own releases first. A worker that seems full is asked all the same, and keeps room for who did."""
    async with fleet(SOLO, kv_blocks=12) as one:
        decode = one.members["b0"].worker.decode
        theirs = [await decode.reserve(ReserveRequest("other", f"r{number}", 40, 50, 3600.0)) for number in range(2)]
        assert [isinstance(each, Reservation) and each.blocks for each in theirs] == [6, 6]
        waiting = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=8)))
        await until(lambda: len(decode.refused) == 1, 30.0)
        first = theirs[0]
        assert isinstance(first, Reservation)
        decode.ledger.release(first.reservation_id)
        again = await decode.reserve(ReserveRequest("other", "r2", 40, 50, 3600.0))
        assert isinstance(again, Refusal)
        assert (await waiting).record.phase is Phase.DONE


async def test_who_wants_several_answers_is_not_kept_out_by_single_ones_where_places_in_the_batch_are_short() -> None:
    async with fleet(SOLO, kv_blocks=400, max_num_seqs=2, profile="toy") as one, asyncio.TaskGroup() as tasks:

        def ask(number: int, n: int = 1) -> asyncio.Task[Answer]:
            wanted = intent(prompt(40, number), n=n, max_tokens=20 + 7 * (number % 3), ignore_eos=True)
            return tasks.create_task(one.ask(wanted))

        for number in range(3):
            ask(number)
        await until(lambda: one.cluster.snapshot().queued == 1)
        both = ask(3, n=2)
        await until(lambda: one.cluster.snapshot().queued == 2)
        later = [ask(number) for number in range(4, 10)]
        begun_s = (await both).record.entered_s[Phase.RESERVED]
        assert begun_s < min([(await each).record.entered_s[Phase.RESERVED] for each in later])


async def test_the_place_of_an_answer_that_has_ended_is_not_kept_for_the_others_of_its_request() -> None:
    async with fleet(SOLO, kv_blocks=400, max_num_seqs=3, profile="toy") as one:
        worker = one.cluster.worker("b0")
        assert worker is not None
        several = intent(n=3, max_tokens=1000, ignore_eos=True)
        async with one.lifecycle.open(several, one.record(several)) as stream:
            await until(lambda: one.cluster.integrity().sequences == 3)
            assert worker.as_decode(0).slots_free == 0
            await stream.stop_choice(1)
            await until(lambda: worker.as_decode(0).slots_free == 1)
            assert (await one.ask(intent(prompt(41), max_tokens=2))).record.phase is Phase.DONE
            assert stream.record.phase is Phase.DECODING
        await one.settled()
