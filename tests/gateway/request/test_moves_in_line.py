"""What an answer that has begun stands in line with."""

from math import inf
from typing import Any, cast

from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller, Setting
from gateway.policy.control.plan import Asked
from gateway.policy.estimate import Features
from gateway.policy.prefix import PrefixKey
from gateway.policy_config import PolicyConfig
from gateway.request.merge import Merge, Origin
from gateway.request.moves import Moves

PROMPT = (1, 2, 3, 4)


def test_it_keeps_its_place_and_is_held_to_nothing_that_was_for_a_first_token() -> None:
    classes = {"default": {"ttft_s": 3.0, "queue_s": 2.0}}
    controller = Controller(PolicyConfig.model_validate({"classes": classes}), lambda: 0.0, Setting(queue_s=30.0))
    plan = controller.plan(Asked(Features("m", len(PROMPT)), 1, 100, declared=True, window=8192, kv_tokens=16_000))
    bid = Bid("r", plan.need, PrefixKey(PROMPT, ""), arrival=7, asks=2, plan=plan)
    moves = Moves(cast(Any, None), Merge(0, 100, False, Origin(), tokens=[5, 6]), PrefixKey(PROMPT, ""))

    begun = moves.begun(bid)
    assert (begun.arrival, begun.asks) == (7, 2)  # it has had its turn: nobody objects to it, and it is in front
    assert begun.avoid is bid.avoid
    assert (begun.need.prompt_tokens, begun.need.growth_tokens) == (6, 98)
    assert begun.prefix == PrefixKey((*PROMPT, 5, 6), "")
    assert begun.plan is not None
    claim = controller.claim(begun.plan)
    assert (claim.deadline_s, claim.promise_s) == (30.0, inf)
    assert bid.plan is plan  # what its length is judged by at the end
