"""The policy at work in a gateway: estimates, limits, promises, explanations, and workers that several gateways share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from decode_pool.ledger import Load
from gateway.cluster.cluster import Cluster
from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from gateway.request.lifecycle import Lifecycle
from gateway.request.phase import Phase
from proto.reservation import Refusal, Reservation, ReserveRequest
from proto.work import FinishReason
from tests.engine.simulated.hold import before_each_step
from tests.gateway.fleet import PAIR, SOLO, Fleet, config, expected, fleet, intent, prompt, until
from tests.waiting import HANG_S, TURN_S

#: Simulated workers are as quick as the profile; no test here waits for them.
LONG: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}


def of(tenant: str, wanted: Intent) -> Intent:
    return replace(wanted, tenant=tenant)


def nothing_is_owed(one: Fleet) -> None:
    """No pass of a limit and no bill of the line is left open."""
    desk = one.lifecycle._shared.desk
    assert one.lifecycle.policy().admitted == 0
    assert desk._line.open_bills == 0  # type: ignore[attr-defined]  # the line is a fair queue here


async def refusal(one: Fleet, wanted: Intent) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await one.ask(wanted)
    return caught.value


async def busiest(one: Fleet, wanted: list[Intent]) -> int:
    """How many are let in at once when nobody ends; all are served in the end."""
    (member,), go_on = one.members.values(), asyncio.Event()
    ledger = member.worker.decode.ledger
    before_each_step(member.engine.injector, go_on.wait)

    asked = [asyncio.create_task(one.ask(each)) for each in wanted]
    await until(lambda: one.cluster.snapshot().queued + ledger.reservations == len(wanted))
    most, turns = 0, 0
    while turns < 50:  # nobody gets in any more
        turns = turns + 1 if ledger.reservations == most else 0
        most = ledger.reservations
        await asyncio.sleep(TURN_S)
    go_on.set()
    answers = await asyncio.gather(*asked)
    for each, answer in zip(wanted, answers, strict=True):
        assert answer.tokens() == expected(each.prompts[0], each.sampling)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["declared", "forecast"])
async def test_what_has_been_learnt_of_lengths_lets_more_in(rule: str) -> None:
    """Clients that declare 400 tokens and take about 20: belief in the declaration leaves most of the KV idle."""
    settings = config(policy={"rule": rule})
    async with fleet(SOLO, kv_blocks=90, profile="toy", settings=settings) as one:

        def some(count: int, first: int) -> list[Intent]:
            short = [(prompt(40, first + at), 12 + at % 8) for at in range(count)]
            return [intent(tokens, max_tokens=400, stop_token_ids=_stop(tokens, at)) for tokens, at in short]

        for batch in range(10):
            await asyncio.gather(*[one.ask(each) for each in some(20, 20 * batch)])
        most = await busiest(one, some(60, 500))
        preemptions = one.members["b0"].engine.stats().preemptions
        assert (most <= 4) if rule == "declared" else (most >= 8), most
        assert preemptions <= (0 if rule == "declared" else 2)  # within the error budget
        await one.settled()
        nothing_is_owed(one)


def _stop(tokens: tuple[int, ...], length: int) -> tuple[int, ...]:
    """A stop token that ends the answer after at most `length` tokens."""
    whole = expected(tokens, intent(max_tokens=length, ignore_eos=True).sampling)
    return (whole[-1],)


async def test_concurrency_is_limited_per_tenant_and_comes_back() -> None:
    settings = config(policy={"tenants": {"acme": {"concurrent": 1}}})
    async with fleet(SOLO, profile="toy", settings=settings) as one:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.ask(of("acme", intent(prompt(40), **LONG))))
            await until(lambda: one.cluster.integrity().sequences == 1)
            error = await refusal(one, of("acme", intent(prompt(41))))
            assert (error.reason, error.status) == (Reason.CONCURRENCY_LIMITED, 429)
            assert error.numbers == {"in_hand": 1, "allowed": 1}
            assert error.retry_after_s is not None
            assert error.policy == one.lifecycle.controller.version
            await one.ask(of("other", intent(prompt(42))))
        await one.ask(of("acme", intent(prompt(43))))
        await one.settled()
        nothing_is_owed(one)


async def test_what_winds_up_after_its_answer_keeps_nobody_out() -> None:
    """A client that asks again as soon as it has its answer: of several choices one may still be ended in the engine."""
    settings = config(policy={"others": {"concurrent": 1}})
    async with fleet(SOLO, profile="toy", settings=settings) as one:
        first = intent(prompt(40), n=4, max_tokens=500, ignore_eos=True)
        async with one.lifecycle.open(first, one.record(first)) as stream:
            for choice in range(4):
                await stream.stop_choice(choice)
            async for _ in stream:
                pass
            await one.ask(intent(prompt(41)))
        await one.settled()
        nothing_is_owed(one)


async def test_a_rate_limit_says_exactly_when(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(policy={"tenants": {"acme": {"requests_per_s": 0.05, "burst_s": 20.0}}})
    async with fleet(SOLO, settings=settings) as one:
        later_s = 0.0
        controller = one.lifecycle.controller
        monkeypatch.setattr(controller, "_clock", lambda: one.lifecycle.clock() + later_s)
        await one.ask(of("acme", intent(prompt(40))))
        error = await refusal(one, of("acme", intent(prompt(41))))
        assert (error.reason, error.status) == (Reason.RATE_LIMITED, 429)
        assert error.retry_after_s is not None
        later_s = error.retry_after_s
        await one.ask(of("acme", intent(prompt(42))))
        nothing_is_owed(one)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.PREFILLING, Phase.DECODING])
async def test_leaving_gives_back_what_the_policy_counts(phase: Phase) -> None:
    hang = {"p0": {"faults": [{"kind": "hang", "phase": "prefill", "where": {"leg": "prefill"}}]}}
    scripts = hang if phase is Phase.PREFILLING else {}
    settings = config(policy={"others": {"concurrent": 2}})
    async with fleet(PAIR, kv_blocks=32, profile="toy", scripts=scripts, settings=settings) as one:
        blocker = None
        if phase is Phase.QUEUED:
            blocker = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=440, ignore_eos=True)))
            await until(lambda: one.cluster.integrity().sequences == 1)
        await one.leave_in(intent(prompt(45), max_tokens=400, ignore_eos=True), phase)
        if blocker is not None:
            await blocker
        await one.settled()
        nothing_is_owed(one)


async def test_a_promise_that_the_line_breaks_is_its_own_reason() -> None:
    settings = config(policy={"classes": {"hurried": {"tenants": ["acme"], "ttft_s": 0.3}}})
    async with fleet(SOLO, kv_blocks=8, profile="toy", settings=settings) as one, asyncio.TaskGroup() as tasks:
        blocker = tasks.create_task(one.ask(intent(prompt(40), max_tokens=80, ignore_eos=True)))
        await until(lambda: one.cluster.integrity().sequences == 1)
        one.members["b0"].engine.injector.use(_frozen())
        error = await refusal(one, of("acme", intent(prompt(41), max_tokens=80)))
        assert (error.reason, error.status) == (Reason.TTFT_UNREACHABLE, 503)
        assert error.retry_after_s is not None
        assert error.numbers["waited_s"] > 0
        one.members["b0"].engine.injector.use(_thawed())
        await blocker


def _frozen() -> Any:
    from engine.simulated.faults import Script

    return Script.model_validate({"faults": [{"kind": "full"}]})


def _thawed() -> Any:
    from engine.simulated.faults import Script

    return Script.model_validate({"faults": []})


async def test_a_clients_own_deadline_ends_its_waiting() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one:
        one.members["b0"].engine.injector.use(_frozen())
        await until(lambda: (seen := one.seen("b0")) is not None and seen.blocks_used == seen.blocks_total)
        wanted = replace(intent(prompt(40), max_tokens=80), deadline_s=one.lifecycle.clock() + 0.2)
        error = await refusal(one, wanted)
        assert error.reason is Reason.QUEUE_TIMEOUT
        assert error.numbers["waited_s"] < one.config.deadlines.queue_s
        one.members["b0"].engine.injector.use(_thawed())
        nothing_is_owed(one)


async def test_what_could_never_fit_is_refused_at_once_while_others_wait_and_run() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(one.ask(intent(prompt(40), max_tokens=80, ignore_eos=True)))
        await until(lambda: one.cluster.integrity().sequences == 1)
        waiting = tasks.create_task(one.ask(intent(prompt(41), max_tokens=80)))
        await until(lambda: one.cluster.snapshot().queued == 1)
        error = await refusal(one, intent(prompt(42), max_tokens=500))
        assert error.reason is Reason.KV_CAPACITY
        assert error.numbers["blocks_total"] == 8
        assert not running.done()
        assert not waiting.done()


async def test_a_decision_can_be_explained_afterwards() -> None:
    async with fleet(PAIR) as one:
        served, refused = intent(prompt(40), n=2), intent(prompt(40), max_tokens=10**6)
        await one.ask(served)
        await refusal(one, refused)
        decisions = one.lifecycle.controller.decisions
        (decision,) = decisions.of(served.request_id)
        assert [look.what for look in decision.looks] == ["placed"]
        assert decision.looks[0].worker_id == "d0"
        assert decision.looks[0].candidates[0].verdict == "fits"
        assert {row["tokens"] for row in decision.answered} <= {1, 2, 3, 4, 5, 6, 7, 8}
        assert decision.estimate["p50"] <= 8
        assert decisions.of(refused.request_id) == []  # refused at the door, by the window
        record = one.watcher.records[0]
        assert (record.policy, record.klass) == (decision.policy, "default")
        assert record.estimated_tokens > 0


@asynccontextmanager
async def second(one: Fleet) -> AsyncIterator[Lifecycle]:
    """Another gateway over the same workers."""
    settings = one.config.model_copy(update={"workers": tuple(member.address for member in one.members.values())})
    async with Cluster(settings, one.watcher) as cluster:
        lifecycle = Lifecycle(cluster, settings, one.watcher)
        await until(lambda: cluster.snapshot().ready)
        yield lifecycle
        await until(lambda: cluster.integrity().idle)


@pytest.mark.parametrize("rule", ["declared", "forecast"])
async def test_two_gateways_never_promise_the_same_blocks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sees a free worker; together they ask for four times what it has."""
    settings = config(policy={"rule": rule})
    async with fleet(SOLO, kv_blocks=64, profile="toy", settings=settings) as one, second(one) as other:
        decode, engine = one.members["b0"].worker.decode, one.members["b0"].engine
        grant, promised = decode.ledger.reserve, list[float]()

        def granting(request: ReserveRequest, load: Load, *, others_first: bool = False) -> Reservation | Refusal:
            reply = grant(request, load, others_first=others_first)
            if isinstance(reply, Reservation):
                promised.append(decode.ledger.promised_blocks(load))
            return reply

        # What is promised is judged at every grant: an answer that outlives its estimate raises the forecast afterwards.
        monkeypatch.setattr(decode.ledger, "reserve", granting)

        async def ask(lifecycle: Lifecycle, seed: int) -> None:
            wanted = intent(prompt(40, seed), max_tokens=80, ignore_eos=True)
            tokens: list[int] = []
            async with asyncio.timeout(HANG_S), lifecycle.open(wanted, one.record(wanted)) as stream:
                async for batch in stream:
                    for piece in batch:
                        tokens += piece.tokens
                        assert piece.finish in (None, FinishReason.LENGTH)
            assert tuple(tokens) == expected(wanted.prompts[0], wanted.sampling)

        asked = [ask(lifecycle, seed) for seed in range(16) for lifecycle in (one.lifecycle, other)]
        await asyncio.gather(*asked)
        assert len(promised) == len(asked)
        assert max(promised) <= 64
        assert max(promised) > 32  # and they did use it
        assert engine.stats().preemptions == 0
        await one.settled()
        nothing_is_owed(one)


@pytest.mark.slow
@pytest.mark.parametrize("may_cap", [True, False])
async def test_a_class_that_may_be_capped_ends_with_what_it_has_when_kv_runs_out(may_cap: bool) -> None:
    """Growth that was believed to be 16 tokens and is 88, on KV for two such answers."""
    klass = {"on_overrun": ["cap"], "cap_tokens": 8} if may_cap else {}
    policy = {"rule": "declared", "classes": {"default": klass}}
    settings = config(admission={"default_output_tokens": 16}, policy=policy, health={"watch_interval_s": 0.02})
    slowly = 0.1 if may_cap else 1.0  # so that the worker's news come in time on a busy machine, too
    async with fleet(SOLO, kv_blocks=16, max_model_len=128, profile="toy", speedup=slowly, settings=settings) as one:
        wanted = [intent(prompt(40, seed), declared=False, max_tokens=10_000, ignore_eos=True) for seed in range(4)]
        answers = await asyncio.gather(*[one.ask(each) for each in wanted])
        capped = [answer for answer in answers if answer.record.capped]
        assert (len(capped) > 0) is may_cap
        if not may_cap:
            assert one.members["b0"].engine.stats().preemptions > 0  # so there was something to cap for
        for each, answer in zip(wanted, answers, strict=True):
            whole = expected(each.prompts[0], replace(each.sampling, max_tokens=88))
            came = answer.tokens()
            assert came == whole[: len(came)]
            assert answer.finish() is FinishReason.LENGTH
            assert answer.record.phase is Phase.DONE
            assert len(came) == 88 or (answer.record.capped == 1 and len(came) >= 8)
            assert [piece.capped for piece in answer.pieces if piece.finish] == [answer.record.capped == 1]
        await one.settled()
        nothing_is_owed(one)


async def test_a_tenant_with_a_long_queue_does_not_hold_up_another() -> None:
    async with fleet(SOLO, kv_blocks=8, profile="toy") as one:
        ended: list[str] = []

        async def ask(tenant: str, seed: int) -> None:
            await one.ask(of(tenant, intent(prompt(40, seed), max_tokens=60, ignore_eos=True)))
            ended.append(tenant)

        async with asyncio.TaskGroup() as tasks:
            for seed in range(12):
                tasks.create_task(ask("greedy", seed))
            await until(lambda: one.cluster.snapshot().queued >= 10)
            for seed in range(20, 22):
                tasks.create_task(ask("modest", seed))
        assert ended.index("modest") <= 4
        assert [at for at, tenant in enumerate(ended) if tenant == "modest"][-1] <= 7
        await one.settled()
        nothing_is_owed(one)


async def test_several_prompts_at_once_do_not_look_like_one_that_was_quick() -> None:
    """Their tokens were added up over the time of the slowest: promises and slowdowns were judged by a false pace."""
    async with fleet(SOLO, profile="toy") as one:
        pace = one.lifecycle._shared.controller.pace
        await one.ask(intent(prompt(300, 1), prompt(300, 2), max_tokens=4))
        assert (pace.prompt_s, pace.best_prompt_s) == (0.0, 0.0)
        await one.ask(intent(prompt(300, 3), max_tokens=4))
        assert pace.prompt_s > 0


async def test_prompts_of_one_request_reserve_by_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unanswered Reserve is given back by name: one prompt's took away what its siblings had been granted."""
    async with fleet(SOLO, profile="toy") as one:
        ledger, names = one.members["b0"].worker.decode.ledger, list[str]()
        grant = ledger.reserve

        def granting(request: ReserveRequest, load: Load, *, others_first: bool = False) -> Reservation | Refusal:
            names.append(request.request_id)
            return grant(request, load, others_first=others_first)

        monkeypatch.setattr(ledger, "reserve", granting)
        await one.ask(intent(prompt(40, 1), prompt(40, 2), prompt(40, 3), max_tokens=4))
        assert len(set(names)) == len(names) == 3
