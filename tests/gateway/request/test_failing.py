"""What breaks on the workers' side, what the client sees, and what is tried again."""

import asyncio
from typing import Any

import pytest

from engine.simulated.faults import Script
from gateway.cluster.states import PairState, WorkerStatus
from gateway.request.errors import Reason, RequestError
from gateway.request.holds import TicketHold
from gateway.request.phase import Phase
from proto.worker import Role
from tests.engine.simulated.hold import Hold
from tests.gateway.fleet import FOUR, PAIR, SOLO, Answer, Fleet, config, expected, fleet, intent, prompt, until


def script(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"faults": list(rules)}


def right(answer: Answer, length: int = 40, **more: Any) -> bool:
    return answer.tokens() == expected(prompt(length), intent(**more).sampling)


async def refused(one: Fleet, *prompts: tuple[int, ...], **more: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await one.ask(intent(*prompts, **more))
    return caught.value


ONCE = {"times": 1}


@pytest.mark.parametrize("policy", ["other_then_local", "other", "local"])
async def test_a_failed_prefill_is_tried_once_more_by_policy(policy: str) -> None:
    rule = {"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}, **ONCE}
    async with fleet(
        FOUR, scripts={"p0": script(rule)}, settings=config(routing={"on_prefill_failure": policy})
    ) as one:
        answer = await one.ask(intent(prompt(40)))
        assert right(answer)
        assert answer.record.retries == 1
        if policy == "local":
            assert (answer.record.path, answer.record.path_reason) == ("local", "prefill_failed")
        await one.settled()


async def test_a_prefill_that_fails_twice_is_an_error() -> None:
    rule = {"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}}
    scripts = {"p0": script(rule), "p1": script(rule)}
    async with fleet(FOUR, scripts=scripts) as one:
        error = await refused(one, prompt(40))
        assert (error.reason, error.status) == (Reason.PREFILL_FAILED, 502)
        assert one.watcher.records[0].phase is Phase.FAILED
        await one.settled()


async def test_the_fail_policy_does_not_retry() -> None:
    rule = {"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}, **ONCE}
    async with fleet(
        PAIR, scripts={"p0": script(rule)}, settings=config(routing={"on_prefill_failure": "fail"})
    ) as one:
        assert (await refused(one, prompt(40))).reason is Reason.PREFILL_FAILED
        await one.settled()


@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "kv_capacity"])
async def test_b38_b44_a_refusal_of_the_prefill_worker_goes_straight_to_the_client(kind: str) -> None:
    rule = {"kind": "refuse", "fault": kind, "where": {"leg": "prefill"}}
    async with fleet(PAIR, scripts={"p0": script(rule)}) as one:
        for _ in range(10):
            error = await refused(one, prompt(40))
            assert error.status == 400
        assert one.watcher.retries == []
        assert one.seen("p0").status is WorkerStatus.READY  # type: ignore[union-attr]  # None would fail the test as well
        assert one.watcher.records[0].phase is Phase.REJECTED
        await one.settled()


async def test_b10_a_missing_handoff_is_counted_and_follows_the_policy() -> None:
    async with fleet(PAIR, scripts={"p0": script({"kind": "handoff_missing", **ONCE})}, kv_lease_s=0.5) as one:
        answer = await one.ask(intent(prompt(40)))
        assert right(answer)
        assert one.watcher.missing == 1
        assert answer.record.path == "local"
        await one.settled(2.0)  # nobody knows the ticket: only the lease frees it
    settings = config(routing={"on_prefill_failure": "fail"})
    async with fleet(PAIR, scripts={"p0": script({"kind": "handoff_missing"})}, settings=settings) as one:
        assert (await refused(one, prompt(40))).reason is Reason.HANDOFF_FAILED


@pytest.mark.parametrize("length", [40, 48], ids=["carry", "replay"])
@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "where": {"leg": "pull"}, **ONCE},
        {"kind": "fail", "after_tokens": 0, "fault": "internal", "where": {"leg": "pull"}, **ONCE},
    ],
    ids=["load failed", "internal"],
)
async def test_a_decode_leg_that_fails_before_its_first_token_is_tried_once_more(
    rule: dict[str, Any], length: int
) -> None:
    async with fleet(PAIR, scripts={"d0": script(rule)}) as one:
        answer = await one.ask(intent(prompt(length), max_tokens=20))
        assert right(answer, length, max_tokens=20)
        assert answer.record.retries == 1
        await one.settled()


async def test_a_decode_leg_that_always_fails_is_an_error_and_the_pair_is_quarantined() -> None:
    rule = {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "where": {"leg": "pull"}}
    async with fleet(PAIR, scripts={"d0": script(rule)}) as one:
        error = await refused(one, prompt(48))
        assert error.reason is Reason.HANDOFF_FAILED
        assert PairState.QUARANTINED in [state for state, _ in one.watcher.pairs]
        await one.settled()


async def test_after_a_decode_token_nothing_is_tried_again() -> None:
    rule = {"kind": "fail", "after_tokens": 5, "where": {"leg": "pull"}, **ONCE}
    async with fleet(PAIR, scripts={"d0": script(rule)}) as one:
        answer, error = await one.outcome(intent(prompt(40), max_tokens=20, ignore_eos=True))
        assert error is not None
        assert error.reason is Reason.DECODE_FAILED
        assert len(answer.tokens()) >= 5
        record = answer.record
        assert (record.retries, record.phase, record.failed_phase) == (0, Phase.FAILED, Phase.DECODING)
        await one.settled()


@pytest.mark.parametrize("rule", [{"double_token": 3}, {"drop_token": 3}], ids=["double", "drop"])
async def test_an_engine_that_breaks_the_contract_is_not_passed_off_as_an_answer(rule: dict[str, int]) -> None:
    """One token more than was asked for is seen; with logprobs, so is one token less."""
    async with fleet(SOLO, scripts={"b0": script({"kind": "wrong_count", **rule})}) as one:
        if "double_token" in rule:
            assert (await refused(one, prompt(40), ignore_eos=True)).reason is Reason.DECODE_FAILED
        else:
            answer = await one.ask(intent(prompt(40), ignore_eos=True))
            assert answer.record.completion_tokens == len(answer.tokens())  # B-12: counted from ids
        await one.settled()


@pytest.mark.parametrize("length", [40, 48], ids=["carry", "replay"])
@pytest.mark.parametrize("stale", [1, 2, 3])
async def test_b31_a_ticket_too_old_is_prefilled_again_never_dispatched(
    stale: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = iter([False] * stale)
    monkeypatch.setattr(TicketHold, "usable", lambda self, margin_s: next(verdicts, True))
    async with fleet(PAIR) as one:
        if stale > 2:
            assert (await refused(one, prompt(length))).reason is Reason.HANDOFF_FAILED
        else:
            assert right(await one.ask(intent(prompt(length), max_tokens=20)), length, max_tokens=20)
            assert one.members["p0"].engine.stats().tickets_expired == 0
        assert one.watcher.expired == stale
        assert len(one.watcher.handoffs) == (stale <= 2)
        await one.settled()


async def test_b31_kv_that_the_writer_has_freed_early_is_prefilled_again() -> None:
    async with fleet(PAIR, scripts={"p0": script({"kind": "early_expiry", "after_s": 0, **ONCE})}) as one:
        answer = await one.ask(intent(prompt(40)))
        assert right(answer)
        assert answer.record.retries == 1
        assert one.watcher.expired == 1
        await one.settled()


async def test_b51_a_ticket_of_an_earlier_epoch_is_prefilled_again() -> None:
    async with fleet(PAIR, scripts={"p0": script({"kind": "stale_epoch", **ONCE})}) as one:
        answer = await one.ask(intent(prompt(40)))
        assert right(answer)
        assert answer.record.retries == 1
        # A ticket with a false epoch cannot be given back: only its lease frees it, which ends at the next look.
        one.members["p0"].engine.injector.use(Script.model_validate(script({"kind": "clock", "offset_s": 60.0})))
        await one.ask(intent(prompt(50)))
        await one.settled()


async def test_b40_no_prefill_worker_is_an_explicit_refusal_or_an_explicit_policy() -> None:
    decode_only = (("d0", Role.DECODE),)
    async with fleet(decode_only) as one:
        error = await refused(one, prompt(40))
        assert (error.reason, error.status) == (Reason.NO_PREFILL_WORKER, 503)
        assert error.retry_after_s is not None
        assert not one.cluster.snapshot().ready
        assert "no ready prefill worker" in one.cluster.snapshot().missing
    async with fleet(decode_only, settings=config(routing={"on_no_prefill": "local"})) as one:
        answer = await one.ask(intent(prompt(40)))
        assert right(answer)
        assert (answer.record.path, answer.record.path_reason) == ("local", "no_prefill_worker")
        assert one.cluster.snapshot().mode == "local"


async def test_no_worker_at_all_is_a_refusal() -> None:
    async with fleet() as one:
        error = await refused(one, prompt(40))
        assert (error.reason, error.status) == (Reason.NO_DECODE_WORKER, 503)
        assert error.numbers == {"decode_workers": 0}  # every refusal has its numbers
        assert one.watcher.records[0].phase is Phase.REJECTED


async def test_deadlines_bound_every_phase() -> None:
    """B-42: a leg that hangs ends with its phase's reason, and its worker is looked at."""

    def only(deadline: str) -> Any:
        """No other may end what is slow for another reason."""
        return config(deadlines={deadline: 0.3}, routing={"on_prefill_failure": "fail"})

    hang = {"kind": "hang", "phase": "prefill", "where": {"leg": "prefill"}, "first": 1, "times": 1}
    async with fleet(PAIR, scripts={"p0": script(hang)}, settings=only("prefill_s")) as one:
        assert (await refused(one, prompt(40))).reason is Reason.PREFILL_TIMEOUT
        await one.settled()
        await one.status("p0", WorkerStatus.READY)  # the probe came through
    hang = {"kind": "hang", "phase": "transfer", "where": {"leg": "pull"}}
    async with fleet(PAIR, scripts={"d0": script(hang)}, settings=only("first_token_s")) as one:
        transfer = Hold(one.members["d0"].engine.injector)
        assert (await refused(one, prompt(40))).reason is Reason.FIRST_TOKEN_TIMEOUT
        transfer.let_go()
        await one.settled()
    hang = {"kind": "hang", "phase": "decode", "after_tokens": 3}
    async with fleet(SOLO, scripts={"b0": script(hang)}, settings=only("idle_s")) as one:
        assert (await refused(one, prompt(40))).reason is Reason.IDLE_TIMEOUT
        await one.settled()


async def test_the_total_deadline_ends_a_stream_that_flows() -> None:
    settings = config(deadlines={"total_s": 0.3})
    async with fleet(SOLO, profile="toy", settings=settings) as one:
        assert (await refused(one, prompt(40), max_tokens=4000, ignore_eos=True)).reason is Reason.REQUEST_TIMEOUT
        await one.settled()


async def test_b53_overloaded_prefill_workers_give_503_with_retry_after() -> None:
    rule = {"kind": "refuse", "fault": "overloaded", "where": {"leg": "prefill"}}
    settings = config(routing={"on_prefill_failure": "other"})
    async with fleet(FOUR, scripts={"p0": script(rule), "p1": script(rule)}, settings=settings) as one:
        error = await refused(one, prompt(40))
        assert (error.reason, error.status) == (Reason.NO_PREFILL_WORKER, 503)
        assert error.retry_after_s
        await one.settled()


@pytest.mark.parametrize("roles", [PAIR, SOLO], ids=["prefill leg", "decode leg"])
async def test_what_cannot_be_put_on_the_wire_is_a_400_and_harms_nobody_else(roles: Any) -> None:
    async with fleet(roles, profile="toy") as one:
        running = asyncio.create_task(one.ask(intent(prompt(40), max_tokens=60, ignore_eos=True)))
        await until(lambda: one.cluster.integrity().sequences == 1)
        error = await refused(one, prompt(40, 1), logit_bias=((2**32, 1.0),))
        assert (error.reason, error.status) == (Reason.INVALID_REQUEST, 400)
        assert len((await running).tokens()) == 60
        assert one.watcher.retries == []
        assert {seen.consecutive_faults for seen in one.cluster.snapshot().workers} == {0}
        await one.settled()


async def test_whatever_goes_wrong_a_prompt_is_computed_three_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill that fails, a pull that fails, tickets too old: each alone may be tried again."""
    verdicts = iter([True])
    monkeypatch.setattr(TicketHold, "usable", lambda self, margin_s: next(verdicts, False))
    prefill = {"kind": "fail", "after_tokens": 0, "where": {"leg": "prefill"}, **ONCE}
    pull = {"kind": "fail", "after_tokens": 0, "fault": "kv_load_failed", "where": {"leg": "pull"}, **ONCE}
    async with fleet(FOUR, scripts={"p0": script(prefill), "d0": script(pull), "d1": script(pull)}) as one:
        error = await refused(one, prompt(40))
        assert error.reason is Reason.HANDOFF_FAILED
        computed = sum(one.members[name].engine.stats().prompt_tokens for name in ("p0", "p1"))
        assert 2 * 41 < computed <= 3 * 41  # a carried token belongs to the third
        assert one.watcher.records[0].retries <= 2
        await one.settled()
