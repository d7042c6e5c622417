"""The parts of the policy put together: plans, versions, classes, limits, promises, accounts."""

import math
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.policy.admission import FifoQueue
from gateway.policy.bid import Ask, Bid, Line
from gateway.policy.control import plan as planning
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.pace import STALE_S
from gateway.policy.control.plan import Asked, Plan, likely_growth
from gateway.policy.dispatch import Dispatch
from gateway.policy.estimate import LEVELS, Estimate, Features, FinishedBy
from gateway.policy.fairness.budget import Outcome
from gateway.policy.fairness.limits import Limited, LimitReason, Pass
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import DecodeCandidate, Fleet, NoRoute, Path, Placement, PrefillCandidate, Rules
from gateway.policy.turned_away import TurnedAway, Why
from gateway.policy_config import PolicyConfig
from proto.worker import Role

RULES = Rules(0, prefill_here_if_none=False)


@dataclass
class World:
    """A clock, a controller, and one colocated worker with `free` blocks of 1000."""

    settings: dict[str, Any] = field(default_factory=dict)
    now_s: float = 100.0
    free: int = 1000

    def __post_init__(self) -> None:
        config = PolicyConfig.model_validate(self.settings)
        self.controller = Controller(config, lambda: self.now_s, Setting(queue_s=30.0))

    def plan(self, prompt: int = 100, limit: int = 1000, answers: int = 1, declared: bool = True, **more: Any) -> Plan:
        asked = Asked(Features("m", prompt, **more), answers, limit, declared, window=8192, kv_tokens=16_000)
        return self.controller.plan(asked)

    def bid(self, arrival: int = 1, **more: Any) -> Bid:
        plan = self.plan(**more)
        bid = Bid(f"r{arrival}", plan.need, PrefixKey((), ""), arrival, tenant=plan.features.tenant, plan=plan)
        bid.claim = self.controller.claim(plan)
        self.controller.open(bid)
        return bid

    def fleet(self, *_: Any) -> Fleet:
        worker = DecodeCandidate("b0", Role.BOTH, 8192, 16, 1000, self.free, 256, headroom_blocks=float(self.free))
        return Fleet((worker,), (), {})

    def dispatch(self, line: Line[str] | None = None, limit: int = 100) -> Dispatch[str]:
        controller = self.controller
        return Dispatch(
            controller.line(limit) if line is None else line,
            RULES,
            self.fleet,
            lambda route: True,
            lambda: self.now_s,
            objection=controller.objection,
            decided=controller.decided,
        )

    def learn(self, tokens: int, count: int = 300, **more: Any) -> None:
        for at in range(count):
            self.now_s += 0.1
            bid = self.bid(at, **more)
            self.controller.answered(bid, tokens, FinishedBy.STOP)


def test_the_declared_rule_tells_the_worker_no_lengths_and_reserves_the_limit() -> None:
    world = World({"rule": "declared"})
    bid = world.bid(limit=700)
    request = world.controller.reserve(bid, "g", "n", 60.0, Placement("b0", Path.COLOCATED, ""), world.fleet)
    assert (request.lengths, request.growth_tokens) == ((), 700)
    assert world.plan(limit=5000, declared=False).need.growth_tokens == 1024
    assert bid.need.likely_tokens == 0


def test_the_forecast_rule_tells_the_distribution_and_learns_it() -> None:
    world = World()
    before = world.plan(limit=1000)
    world.learn(20)
    bid = world.bid(limit=1000)
    request = world.controller.reserve(bid, "g", "n", 60.0, Placement("b0", Path.COLOCATED, ""), world.fleet)
    assert len(request.lengths) == 33
    assert request.limit_tokens == 1000
    assert request.growth_tokens == 1000  # what must fit an empty worker is what was declared
    assert bid.need.likely_tokens < before.need.likely_tokens / 4
    assert bid.plan is not None
    assert bid.plan.estimate.quantile(0.9) <= 25


def test_an_answer_without_a_limit_is_never_expected_beyond_what_a_worker_holds() -> None:
    plan = World().plan(prompt=15_000, limit=100_000, declared=False)
    assert plan.limit_tokens == 999
    assert plan.estimate.lengths[-1] <= 999


def test_kv_is_counted_as_arriving_when_its_prompt_has_been_computed() -> None:
    world = World()
    world.controller.pace.seen(1000, 2.0, 10, 0.1)
    bid = world.bid(prompt=500)
    fleet = world.fleet()
    at_once = world.controller.reserve(bid, "g", "n", 60.0, Placement("b0", Path.LOCAL, ""), lambda: fleet)
    later = world.controller.reserve(bid, "g", "n", 60.0, Placement("b0", Path.REMOTE, ""), lambda: fleet)
    assert at_once.arrival_s == 0.0
    assert later.arrival_s == pytest.approx(1.0)


def test_while_no_speed_is_known_kv_is_counted_from_now_on() -> None:
    """At an assumed speed it came sooner than it was counted for, and the same room had been promised twice."""
    world = World()
    world.controller.pace.seen(80, 0.02, 10, 0.1)  # too few tokens to tell a speed
    bid = world.bid(prompt=500)
    request = world.controller.reserve(bid, "g", "n", 60.0, Placement("b0", Path.REMOTE, ""), world.fleet)
    assert request.arrival_s == 0.0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 4000))
def test_a_likely_growth_lies_between_one_token_and_the_longest_answer(lengths: list[int], prompt: int) -> None:
    estimate = Estimate.of_samples(sorted(lengths))
    growth = likely_growth(estimate, prompt)
    assert 1 <= growth <= max(lengths)
    held = (1.0 - LEVELS) * (prompt + estimate.lengths)  # every level is as good as those that are looked at
    assert growth == max(1, math.ceil(held.max()) - prompt)


def test_what_is_read_off_an_estimate_is_there_before_the_next_request_asks() -> None:
    world = World()
    world.controller.answered(world.bid(), 40, FinishedBy.STOP)
    read = planning._capped.cache_info().misses
    world.plan()
    assert planning._capped.cache_info().misses == read


def test_the_version_names_what_is_set_unless_the_operator_does() -> None:
    default = PolicyConfig()
    assert default.name == PolicyConfig().name
    assert default.name != PolicyConfig(stretch=3.0).name
    assert default.name == PolicyConfig(decisions=5).name  # it decides nothing
    assert PolicyConfig(version="blue-7").name == "blue-7"
    assert len(default.name) == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule": "luck"},
        {"classes": {"a": {"on_overrun": ["cap"]}}},
        {"lengths": {"prior": [[0.0, 5], [0.5, 2], [1.0, 9]]}},
        {"unknown": 1},
        {"version": "has spaces"},
    ],
)
def test_a_wrong_policy_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PolicyConfig.model_validate(wrong)


def test_classes_by_tenant_and_effort_in_order() -> None:
    classes = {
        "gold": {"tenants": ["acme"], "band": "high"},
        "thinking": {"efforts": ["high", "thinking"], "weight": 2.0},
        "default": {"ttft_s": 3.0},
    }
    world = World({"classes": classes})
    assert world.plan(tenant="acme", effort="high").klass.name == "gold"
    assert world.plan(tenant="x", effort="high").klass.name == "thinking"
    assert world.plan(tenant="x").klass.name == "default"
    assert world.plan().klass.ttft_s == 3.0
    assert world.bid(tenant="acme").claim.band < world.bid(tenant="x").claim.band


def test_limits_are_per_tenant_and_tell_when_to_come_back() -> None:
    world = World({"tenants": {"acme": {"concurrent": 1, "requests_per_s": 0.5, "burst_s": 2.0}}})
    plans = [world.plan(tenant="acme")]
    first = world.controller.enter("acme", plans)
    assert isinstance(first, Pass)
    second = world.controller.enter("acme", plans)
    assert isinstance(second, Limited)
    assert second.reason is LimitReason.CONCURRENCY
    world.controller.leave(first, 120)
    third = world.controller.enter("acme", plans)
    assert isinstance(third, Limited)
    assert third.reason is LimitReason.RATE
    world.now_s += third.retry_after_s
    assert isinstance(world.controller.enter("acme", plans), Pass)
    assert isinstance(world.controller.enter("other", plans), Pass)


def test_without_a_promise_nothing_is_rejected_early() -> None:
    world = World(free=0)
    assert not isinstance(world.dispatch().enter(world.bid(), ""), TurnedAway)


def test_a_promise_that_cannot_be_kept_is_refused_with_its_numbers() -> None:
    world = World({"classes": {"default": {"ttft_s": 0.5}}})
    world.controller.pace.seen(1000, 10.0, 10, 0.1)  # 100 prompt tokens a second
    away = world.dispatch().enter(world.bid(prompt=200), "")
    assert isinstance(away, TurnedAway)
    assert away.why is Why.TTFT
    assert away.numbers["predicted_ttft_s"] == pytest.approx(2.0)
    assert away.retry_after_s >= 1
    assert isinstance(world.dispatch().enter(world.bid(prompt=20), ""), Placement)


def test_one_bad_figure_does_not_break_every_promise_for_ever() -> None:
    """All are refused, so nothing is measured any more: the figure must get old."""
    world = World({"classes": {"default": {"ttft_s": 1.0}}})
    prefill = PrefillCandidate("p0", Role.PREFILL, 0, tokens_per_s=10.0)
    fleet = replace(world.fleet(), prefills=(prefill,))
    world.controller.pace.seen(1000, 100.0, 10, 0.1)  # 10 prompt tokens a second: the machine stood still
    assert world.controller.objection(world.bid(prompt=400), fleet, 0, 0.0) is not None
    world.now_s += STALE_S + 1
    later = world.bid(prompt=400)
    assert world.controller.objection(later, fleet, 0, 0.0) is None
    assert world.controller.lapse_s(later.claim) > world.now_s  # nor is it given up in line


def test_the_rest_of_a_cached_prompt_does_not_set_the_pace() -> None:
    world = World({"classes": {"default": {"ttft_s": 1.0}}})
    for _ in range(100):
        world.controller.pace.seen(7, 0.05, 10, 0.1)
    assert world.controller.objection(world.bid(prompt=2000), world.fleet(), 0, 0.0) is None


def test_decode_load_is_a_reason_only_if_told_so() -> None:
    for told in (False, True):
        world = World({"early_rejection": {"decode": told}}, free=3)
        found = world.dispatch().enter(world.bid(prompt=400, limit=400), "")
        assert isinstance(found, TurnedAway) is told
        if isinstance(found, TurnedAway):
            assert found.why is Why.DECODE


def test_while_no_worker_is_there_none_is_called_full() -> None:
    """All died and were about to come back: `decode_overloaded` was said of a fleet of none, at once."""
    world = World({"early_rejection": {"decode": True}})
    assert world.controller.objection(world.bid(), Fleet((), (), {}), 0, 0.0) is None


def test_a_promise_ends_the_waiting_before_the_deadline() -> None:
    world = World({"classes": {"default": {"ttft_s": 2.0, "queue_s": 9.0}}})
    claim = world.bid().claim
    assert world.controller.lapse_s(claim) == world.now_s + 2.0
    assert world.controller.broken_promise(claim)
    plain = World().bid().claim
    assert World().controller.lapse_s(plain) == plain.deadline_s
    hurried = replace(plain, deadline_s=inf)
    assert not World().controller.broken_promise(hurried)


def test_decisions_are_few_and_say_why() -> None:
    world = World({"decisions": 2})
    dispatch = world.dispatch()
    for arrival in range(1, 5):
        dispatch.enter(world.bid(arrival), "")
    kept = world.controller.decisions
    assert len(kept) == 2
    assert kept.of("r1") == []
    look = kept.of("r4")[0].looks[0]
    assert (look.what, look.worker_id, look.why) == ("placed", "b0", "role_both")
    assert look.candidates[0].verdict == "fits"
    assert look.candidates[0].path == "colocated"


def test_a_refusal_is_explained_too() -> None:
    world = World()
    away = world.dispatch().enter(world.bid(prompt=100, limit=8000, answers=4), "")
    assert isinstance(away, TurnedAway)
    assert isinstance(away.outlook, NoRoute)
    look = world.controller.decisions.of("r1")[0].looks[-1]
    assert (look.what, look.why) == ("refused", "no_route")
    assert look.candidates[0].verdict == "never fits"


def test_what_came_is_counted_against_what_was_expected() -> None:
    world = World()
    for tokens, ended in ((10, FinishedBy.STOP), (1000, FinishedBy.LENGTH), (5, FinishedBy.CLIENT_LEFT)):
        world.controller.answered(world.bid(), tokens, ended)
    world.controller.answered(world.bid(), 0, FinishedBy.FAILED)  # nothing was learnt of its length
    world.controller.closed(world.plan().klass, Outcome.COMPLETED, 3.0, 100, 10)
    world.controller.refused("queue_full")
    shown = world.controller.snapshot({("normal", "default"): 3})
    row = shown.lengths[0]
    assert (row.klass, row.requests, row.left_early, row.realised_tokens) == ("default", 3, 1, 1010)
    assert shown.queue[0].waiting == 3
    assert shown.rejected == {"queue_full": 1}
    assert shown.fairness[0].requests == 1


steps = st.lists(st.tuples(st.sampled_from(["arrive", "free", "leave"]), st.integers(0, 400)), max_size=40)


@given(steps)
def test_with_one_tenant_and_no_settings_the_line_is_first_come_first_served(script: list[tuple[str, int]]) -> None:
    """Whoever waits is served as a plain queue would serve: only admission itself has changed."""
    served: list[list[str]] = []
    for fair in (True, False):
        world = World(free=0)
        plain: FifoQueue[Ask[str]] = FifoQueue(100)
        dispatch = world.dispatch(None if fair else plain)
        order: list[str] = []
        entries: list[Any] = []
        for what, number in script:
            if what == "arrive":
                bid = world.bid(dispatch.arrive(), prompt=1 + number)
                entries.append(dispatch.enter(bid, bid.request_id))
            elif what == "leave" and entries:
                dispatch.leave(entries.pop(number % len(entries)))
            else:
                world.free = number
                for ask, verdict in dispatch.turns():
                    assert isinstance(verdict, Placement)
                    order.append(ask.item)
                    world.free = max(0, world.free - ask.bid.need.likely_blocks(16))
                world.free = 0
        served.append(order)
    assert served[0] == served[1]


def test_whoever_gets_a_place_is_charged_once_and_settled_at_the_end() -> None:
    world = World()
    line: Line[str] = world.controller.line(10)
    dispatch = world.dispatch(line)
    bid = world.bid(dispatch.arrive(), tenant="acme")
    assert isinstance(dispatch.enter(bid, ""), Placement)
    bid.asks = 1
    assert isinstance(dispatch.enter(bid, ""), Placement)  # refused by its worker, and at once in line again
    assert bid.plan is not None
    received = line.received(bid.claim)  # type: ignore[attr-defined]  # the line is a fair queue here
    assert received == pytest.approx(100 + 2 * bid.plan.output_tokens)
    dispatch.settle(bid, 100, 7)
    assert line.open_bills == 0  # type: ignore[attr-defined]  # the line is a fair queue here
    assert line.received(bid.claim) == pytest.approx(114)  # type: ignore[attr-defined]  # the line is a fair queue here


def test_a_policy_may_not_ask_for_what_nobody_does() -> None:
    with pytest.raises(ValidationError, match=r"preempt cannot be asked.*`move` and `cap` are carried out"):
        PolicyConfig.model_validate({"classes": {"default": {"on_overrun": ["move", "preempt"]}}})
    PolicyConfig.model_validate({"classes": {"default": {"on_overrun": ["move", "cap"], "cap_tokens": 8}}})
