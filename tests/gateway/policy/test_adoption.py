"""Another policy between two decisions: parameters change, what was learnt and who is owed what does not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import Entry
from gateway.policy.bid import Ask, Bid
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.plan import Asked, Plan
from gateway.policy.control.terms import Canary, Terms
from gateway.policy.estimate import Features, FinishedBy
from gateway.policy.fairness.bucket import Bucket
from gateway.policy.fairness.limits import Limited, Pass
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.prefix import PrefixKey
from gateway.policy_config import PolicyConfig, Rule


class World:
    def __init__(self, **settings: Any) -> None:
        self.now_s = 100.0
        self.controller = Controller(PolicyConfig.model_validate(settings), lambda: self.now_s, Setting(queue_s=30.0))
        self.line: FairQueue[Ask[str]] = self.controller.line(100)  # type: ignore[assignment]  # the line of a controller is one

    def adopt(self, **settings: Any) -> None:
        self.controller.adopt(PolicyConfig.model_validate(settings))

    def plan(self, tenant: str = "", limit: int = 1000, prompt: int = 100) -> Plan:
        return self.controller.plan(Asked(Features("m", prompt, tenant), 1, limit, True, 8192, 16_000))

    def stand(self, arrival: int, tenant: str = "", prompt: int = 100) -> Entry[Ask[str]]:
        plan = self.plan(tenant, prompt=prompt)
        bid = Bid(f"r{arrival}", plan.need, PrefixKey((), ""), arrival, tenant=tenant, plan=plan)
        bid.claim = self.controller.claim(plan)
        entry = Entry(arrival, Ask(bid, f"r{arrival}"))
        self.line.push(entry)
        return entry

    def served(self) -> list[str]:
        order = []
        while head := self.line.head:
            self.line.take(head)
            order.append(head.item.item)
        return order

    def learn(self, tokens: int, count: int = 200) -> None:
        for at in range(count):
            self.now_s += 0.1
            plan = self.plan(limit=8000)
            bid = Bid(f"l{at}", plan.need, PrefixKey((), ""), at, plan=plan)
            self.controller.answered(bid, tokens, FinishedBy.STOP)


def test_version_rule_and_classes_are_those_of_the_new_policy() -> None:
    world = World(version="a")
    world.adopt(version="b", rule="declared", classes={"gold": {"tenants": ["t"], "ttft_s": 2}})
    plan = world.plan("t")
    assert (world.controller.version, plan.terms.version, plan.klass.name, plan.lengths) == ("b", "b", "gold", ())
    assert world.controller.claim(plan).promise_s == world.now_s + 2
    assert world.controller.snapshot({}).version == "b"


def test_what_was_learnt_of_lengths_stays() -> None:
    world = World()
    world.learn(300)
    before = world.plan(limit=8000).estimate.mean
    assert before == pytest.approx(300, rel=0.2)
    world.adopt(lengths={"half_life_s": 100.0, "prior": [[0.0, 4000], [1.0, 8000]], "shrink_observations": 5})
    assert world.plan(limit=8000).estimate.mean == pytest.approx(300, rel=0.2)
    assert world.controller.snapshot({}).lengths[0].requests == 200


def test_a_class_that_has_learnt_nothing_believes_the_new_prior() -> None:
    world = World()
    world.adopt(lengths={"prior": [[0.0, 700], [1.0, 710]]})
    assert world.plan(limit=8000).estimate.mean == pytest.approx(705, rel=0.05)


def test_what_is_in_hand_counts_under_new_limits_and_leaves_as_it_came() -> None:
    world = World(others={"concurrent": 5})
    controller = world.controller
    passes = [controller.enter("t", [world.plan("t")]) for _ in range(3)]
    world.adopt(others={"concurrent": 3})
    assert isinstance(controller.enter("t", [world.plan("t")]), Limited)
    for one in passes:
        assert isinstance(one, Pass)
        controller.leave(one, 10)
    assert isinstance(controller.enter("t", [world.plan("t")]), Pass)
    assert len(controller.limiter) == 1


def test_a_debt_is_not_forgiven_by_another_rate() -> None:
    world = World(others={"tokens_per_s": 10, "burst_s": 1})
    controller = world.controller
    assert isinstance(controller.enter("t", [world.plan("t")]), Pass)  # far beyond the burst: a debt
    world.adopt(others={"tokens_per_s": 20, "burst_s": 1})
    assert isinstance(controller.enter("t", [world.plan("t")]), Limited)
    world.now_s += 1000
    assert isinstance(controller.enter("t", [world.plan("t")]), Pass)


@given(rate=st.floats(0.1, 100), other=st.floats(0.1, 100), cost=st.floats(0, 500), wait_s=st.floats(0, 50))
def test_a_bucket_gains_nothing_by_a_change_of_its_rate(rate: float, other: float, cost: float, wait_s: float) -> None:
    bucket = Bucket(rate, rate)
    bucket.take(cost, 10.0)
    before = bucket.level(10.0 + wait_s)
    bucket.adopt(other, other, 10.0 + wait_s)
    assert bucket.level(10.0 + wait_s) == pytest.approx(min(before, other))


def test_open_bills_are_settled_after_a_change() -> None:
    world = World()
    entry = world.stand(1, "t")
    world.line.take(entry)
    world.adopt(output_weight=5.0, tenants={"t": {"weight": 4}}, long_above_tokens=10)
    world.line.settle(entry, 100, 50)
    assert world.line.open_bills == 0


@given(
    prompts=st.lists(st.integers(1, 4000), min_size=1, max_size=12),
    stretches=st.lists(st.sampled_from([1.0, 2.0, 5.0, 50.0]), min_size=2, max_size=4),
)
def test_nobody_in_line_is_lost_or_served_twice(prompts: list[int], stretches: list[float]) -> None:
    world = World(stretch=stretches[0])
    for arrival, size in enumerate(prompts):
        world.stand(arrival, f"t{arrival % 3}", size)
    for stretch in stretches[1:]:
        world.adopt(stretch=stretch, tenants={"t1": {"weight": 7}}, long_above_tokens=500)
    assert sorted(world.served()) == sorted(f"r{arrival}" for arrival in range(len(prompts)))
    assert len(world.line) == 0


def test_whoever_waits_is_not_overtaken_for_ever_when_the_line_becomes_first_come_first_served() -> None:
    world = World(stretch=50.0)
    for arrival in range(5):
        world.stand(arrival, prompt=1000 * (arrival + 1))
    world.adopt(stretch=1.0)
    for arrival in range(5, 10):
        world.stand(arrival, prompt=10)
    assert world.served() == [f"r{arrival}" for arrival in range(10)]


def test_weights_count_from_the_change_on() -> None:
    world = World()
    for arrival in range(12):
        world.stand(arrival, "ab"[arrival % 2])
    world.adopt(tenants={"a": {"weight": 3}})
    first = world.served()[:8]
    assert sum(int(name[1:]) % 2 == 0 for name in first) == 6  # tenant a has three turns for each of b


def test_a_plan_keeps_the_version_that_it_was_made_under() -> None:
    world = World(version="a", classes={"gold": {"ttft_s": 2}})
    plan = world.plan()
    world.adopt(version="b", rule="declared")
    assert (plan.terms.version, plan.terms.rule, plan.klass.ttft_s) == ("a", Rule.FORECAST, 2)
    bid = Bid("r", plan.need, PrefixKey((), ""), 1, plan=plan)
    world.controller.open(bid)
    assert bid.decision is not None
    assert (bid.decision.policy, bid.decision.rule) == ("a", "forecast")


def test_decisions_beyond_the_new_bound_are_forgotten() -> None:
    world = World()
    for at in range(5):
        plan = world.plan()
        world.controller.open(Bid(f"r{at}", plan.need, PrefixKey((), ""), at, plan=plan))
    world.adopt(decisions=2)
    assert [bool(world.controller.decisions.of(f"r{at}")) for at in range(5)] == [False, False, False, True, True]


@given(share=st.floats(0.01, 0.99))
def test_the_share_of_a_canary_is_that_of_the_requests_and_depends_on_the_id_alone(share: float) -> None:
    canary = Canary(Terms.of(PolicyConfig()), share)
    ids = [f"{at:024x}" for at in range(4000)]
    taken = [canary.takes(one) for one in ids]
    assert sum(taken) / len(ids) == pytest.approx(share, abs=0.05)
    assert [canary.takes(one) for one in ids] == taken
    wider = Canary(canary.terms, min(1.0, share * 1.2))
    assert all(wider.takes(one) for one, was in zip(ids, taken, strict=True) if was)  # widening moves nobody back


def test_a_canary_decides_its_share_and_nothing_else() -> None:
    world = World(version="a")
    controller = world.controller
    other = PolicyConfig.model_validate({"version": "b", "rule": "declared", "classes": {"gold": {"ttft_s": 1}}})
    controller.try_out(other, 0.5)
    terms = {name: controller.terms_of(name) for name in map(str, range(50))}
    assert {one.version for one in terms.values()} == {"a", "b"}
    asked = Asked(Features("m", 100), 1, 1000, True, 8192, 16_000)
    for name, one in terms.items():
        plan = controller.plan(asked, controller.terms_of(name))
        assert (plan.klass.name, bool(plan.lengths)) == (("gold", False) if one.version == "b" else ("default", True))
    assert controller.version == "a"
    controller.try_out(None)
    assert {controller.terms_of(name).version for name in terms} == {"a"}


def test_a_promise_of_the_canary_alone_is_kept_or_given_up_in_time() -> None:
    world = World()
    world.controller.try_out(PolicyConfig.model_validate({"classes": {"default": {"ttft_s": 1}}}), 0.5)
    promised = world.controller.plan(
        Asked(Features("m", 100), 1, 1000, True, 8192, 16_000),
        world.controller.canary.terms,  # type: ignore[union-attr]  # None would fail the test as well
    )
    assert world.controller.lapse_s(world.controller.claim(promised)) == world.now_s + 1
    assert world.controller.lapse_s(world.controller.claim(world.plan())) == world.now_s + 30
