"""What an answer under way asks of another worker."""

import numpy as np

from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.going_on import going_on, newest
from gateway.policy.control.plan import Asked, Plan
from gateway.policy.estimate import Estimate, Features, FinishedBy
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import Fleet, Path, Placement
from gateway.policy_config import PolicyConfig, Rule
from proto.reservation import ReserveRequest

FEATURES = Features("m", 100)


def controller(rule: Rule = Rule.FORECAST) -> Controller:
    return Controller(PolicyConfig(rule=rule), lambda: 100.0, Setting(queue_s=30.0))


def planned(subject: Controller, limit: int = 5_000) -> Plan:
    return subject.plan(Asked(FEATURES, 1, limit, declared=True, window=8_192, kv_tokens=16_000))


def asked(subject: Controller, plan: Plan, *, moves: bool = False, emergency: bool = False) -> ReserveRequest:
    bid = Bid("r", plan.need, PrefixKey((), ""), 1, plan=plan, moves=moves, emergency=emergency)
    return subject.reserve(bid, "g", "r-move", 30.0, Placement("d1", Path.LOCAL, "moved"), lambda: Fleet((), (), {}))


def test_its_tokens_are_prompt_and_its_lengths_are_those_of_the_whole_answer() -> None:
    subject = controller()
    plan = planned(subject)
    after = going_on(plan, 400)
    assert (after.need.prompt_tokens, after.need.growth_tokens, after.need.answers) == (500, 4_600, 1)
    assert after.output_tokens == plan.estimate.given(400).mean
    request = asked(subject, after)
    assert (request.prompt_tokens, request.generated_tokens, request.growth_tokens) == (500, 400, 4_600)
    assert (request.lengths, request.limit_tokens, request.lengths_of) == (plan.lengths, plan.limit_tokens, plan.kin)


def test_only_a_bid_that_is_an_emergency_says_so() -> None:
    for subject in (controller(), controller(Rule.DECLARED)):
        plan = going_on(planned(subject), 10)
        assert not asked(subject, planned(subject)).emergency
        assert not asked(subject, plan, moves=True).emergency
        assert asked(subject, plan, moves=True, emergency=True).emergency


def test_only_a_bid_that_moves_says_so() -> None:
    for subject in (controller(), controller(Rule.DECLARED)):
        plan = going_on(planned(subject), 10)
        assert not asked(subject, plan).moves  # it stands in line again
        assert asked(subject, plan, moves=True).moves


def test_what_is_told_is_the_newest_that_is_known_of_its_class() -> None:
    """The worker takes it for that, and what was known minutes ago would make all of the class as short again."""
    subject = controller()
    plan = planned(subject)
    for _ in range(200):
        subject.lengths.observe(FEATURES, 3_000, FinishedBy.STOP)
    after = going_on(newest(plan, subject.lengths), 400)
    assert after.lengths == planned(subject).lengths
    assert np.median(after.lengths) > 2 * np.median(plan.lengths)


def test_a_length_that_is_known_by_itself_stays_as_it_is() -> None:
    subject = controller()
    known = Estimate.exactly(700)
    plan = planned(subject)
    exact = Plan(
        FEATURES, plan.klass, 1, plan.need, known, plan.limit_tokens, tuple(known.lengths.tolist()), plan.terms, kin=0
    )
    after = going_on(newest(exact, subject.lengths), 400)
    assert (after.output_tokens, set(after.lengths), after.kin) == (300, {700}, 0)
