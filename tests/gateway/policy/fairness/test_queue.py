"""Whose turn it is."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import Entry, FifoQueue
from gateway.policy.fairness.claim import Band, Claim
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.fairness.rules import POLICIES, FairRules
from tests.gateway.policy.fairness.serving import PLAIN, UNHURRIED, claim, push, queue_of, take

MOVES = st.lists(st.tuples(st.sampled_from(["push", "turn", "refused", "leave"]), st.integers(0, 50)), max_size=80)


@pytest.mark.parametrize("rules", [POLICIES["fcfs"], replace(POLICIES["fair"], stretch=1.0)])
@UNHURRIED
@given(moves=MOVES)
def test_one_tenant_and_no_order_by_length_is_a_fifo_queue(rules: FairRules, moves: list[tuple[str, int]]) -> None:
    fair: FairQueue[int] = FairQueue(5, lambda cost: Claim(expected_output_tokens=cost), rules)
    fifo: FifoQueue[int] = FifoQueue(5)
    entries: list[Entry[int]] = []
    for move, number in moves:
        assert (fair.head, len(fair), fair.over_limit) == (fifo.head, len(fifo), fifo.over_limit)
        head = fifo.head
        if move == "push":
            entry = Entry(fair.arrive(), number)
            assert fifo.arrive() == entry.arrival
            entries.append(entry)
            fair.push(entry)
            fifo.push(entry)
            assert fair.last is fifo.last
        elif move == "leave" and entries:
            entry = entries[number % len(entries)]
            assert fair.remove(entry) == fifo.remove(entry)
        elif head is not None:
            assert fair.take(head)
            assert fifo.remove(head)
            if move == "refused":
                fair.push(head)
                fifo.push(head)


TENANTS = st.sampled_from("abc")
COSTS = st.integers(1, 20)
CLAIMS = st.builds(claim, TENANTS, COSTS, st.sampled_from(["chat", "batch"]), st.sampled_from(Band))


@UNHURRIED
@given(
    st.lists(st.lists(CLAIMS, max_size=3), max_size=30), st.sampled_from([1.0, 2.0, inf]), st.sampled_from([0.0, 0.1])
)
def test_work_conserving_and_everybody_is_served_once(
    pattern: list[list[Claim]], stretch: float, band_share: float
) -> None:
    queue = queue_of(replace(PLAIN, stretch=stretch, band_share=band_share))
    served: list[Claim] = []
    for arriving in pattern:
        push(queue, *arriving)
        assert (queue.head is not None) == (len(queue) > 0)
        if len(queue):
            served.append(take(queue))
    while len(queue):
        served.append(take(queue))
    assert sorted(map(repr, served)) == sorted(repr(each) for arriving in pattern for each in arriving)
    assert queue.open_bills == 0
    assert queue.last is None


@UNHURRIED
@given(st.lists(st.lists(st.builds(claim, TENANTS, COSTS), max_size=3), min_size=1, max_size=40))
def test_no_starvation_whatever_arrives(pattern: list[list[Claim]]) -> None:
    """A line's own bound, as often as there are tenants: the others get no more meanwhile than it, and two requests."""
    queue, most, total = queue_of(replace(PLAIN, stretch=2.0)), 20.0, 0.0
    ahead = dict.fromkeys("abc", 0.0)
    bounds: dict[int, float] = {}
    for arriving in pattern + [[]] * sum(map(len, pattern)):
        for entry in push(queue, *arriving):
            cost = entry.item.expected_output_tokens
            own = 2.0 * (ahead[entry.item.tenant] + cost) + most
            bounds[entry.arrival] = total + 3 * (own + 2 * most)
            ahead[entry.item.tenant] += cost
        head = queue.head
        if head is not None:
            served = take(queue)
            total += served.expected_output_tokens
            ahead[served.tenant] -= served.expected_output_tokens
            assert total <= bounds[head.arrival]


def test_a_refused_entry_keeps_its_place_and_its_tenant_pays_nothing() -> None:
    queue = queue_of()
    first, second = push(queue, claim("a", 5.0), claim("b", 1.0))
    assert queue.take(first)
    assert queue.head is second
    again = Entry(first.arrival, first.item)  # the caller may make a new entry for the same prompt
    queue.push(again)
    assert queue.head is again
    assert not queue.remove(first)
    assert queue.open_bills == 0
    assert queue.received(claim("a")) == 0.0
    push(queue, claim("c", 0.1, band=Band.HIGH))
    assert queue.head is again
    assert queue.take(again)
    assert queue.received(claim("a")) == 5.0
    assert not queue.remove(again)


def test_whoever_did_not_have_to_wait_is_charged_too() -> None:
    queue = queue_of()
    entry = Entry(queue.arrive(), claim("a", 5.0))
    assert not queue.take(entry)
    assert queue.received(claim("a")) == 5.0
    queue.settle(entry, 0, 3)
    assert queue.received(claim("a")) == 3.0


@pytest.mark.parametrize("other", [claim("b"), claim("b", klass="batch")])
def test_service_without_waiting_is_not_held_against_a_tenant_later(other: Claim) -> None:
    """While nobody waits there is nothing to share; when contention begins, all start level."""
    queue = queue_of()
    for _ in range(10):
        entry = Entry(queue.arrive(), claim("a", 100.0))
        queue.take(entry)
        queue.settle(entry, 0, 100)
    push(queue, *[other] * 4, *[claim("a")] * 4)
    assert [take(queue).tenant for _ in range(4)] in (["b", "a", "b", "a"], ["a", "b", "a", "b"])


def test_an_entry_cannot_wait_twice() -> None:
    queue = queue_of()
    (entry,) = push(queue, claim())
    with pytest.raises(ValueError, match="already"):
        queue.push(entry)


def test_the_charge_follows_what_is_really_produced() -> None:
    queue = queue_of(replace(PLAIN, prompt_weight=1.0, output_weight=2.0))
    who = Claim("a", prompt_tokens=10, expected_output_tokens=20)
    (entry,) = push(queue, who)
    queue.take(entry)
    assert queue.received(who) == 50.0
    queue.settle(entry, 10, 31)
    queue.settle(entry, 10, 99)
    assert queue.received(who) == 72.0
    assert queue.open_bills == 0


def test_classes_share_by_weight() -> None:
    queue = queue_of(replace(PLAIN, classes={"chat": 3.0}))
    push(queue, *[claim("a", klass="chat")] * 90, *[claim("b", klass="batch")] * 90)
    served = [take(queue).klass for _ in range(80)]
    assert served.count("chat") == 60


def test_a_class_does_not_gain_by_having_many_tenants() -> None:
    queue = queue_of()
    push(queue, *[claim(f"t{each}", klass="chat") for each in range(30)], *[claim("b", klass="batch")] * 30)
    served = [take(queue).klass for _ in range(40)]
    assert served.count("batch") == 20


def test_r06_long_requests_have_a_lane_of_their_own() -> None:
    rules = replace(PLAIN, long_above_tokens=1000, classes={"": 4.0})
    queue = queue_of(rules)
    push(queue, *[claim("a", 2000.0)] * 50, *[claim("a", 100.0)] * 400)
    served = [take(queue).expected_output_tokens for _ in range(200)]
    assert queue.waiting_by_class().keys() == {("normal", "long"), ("normal", "")}
    assert served.count(100.0) * 100 == pytest.approx(4 * served.count(2000.0) * 2000, rel=0.2)


@pytest.mark.parametrize("small", [["small"], ["small", "other"]])
@pytest.mark.parametrize("flood_comes_last", [True, False])
def test_the_newest_of_whoever_has_most_in_line_has_to_go(small: list[str], flood_comes_last: bool) -> None:
    queue = queue_of(limit=2 + len(small))
    floods, others = [claim("flood")] * 3, [claim(tenant, 2.0) for tenant in small]
    entries = push(queue, *(others + floods if flood_comes_last else floods + others))
    newest = entries[-1] if flood_comes_last else entries[2]
    assert queue.over_limit
    assert queue.last is newest
    queue.remove(newest)
    assert not queue.over_limit


def test_what_is_no_longer_in_line_does_not_count_when_somebody_has_to_go() -> None:
    queue = queue_of()
    *most, _ = push(queue, *[claim("a")] * 5)
    *_, newest = push(queue, claim("b"), claim("b"))
    for entry in most:
        queue.remove(entry)
    assert queue.last is newest


def test_the_weight_of_a_tenant_counts_when_somebody_has_to_go() -> None:
    queue = queue_of(replace(PLAIN, tenants={"large": 10.0}))
    *_, small = push(queue, *[claim("large")] * 9, claim("small"))
    assert queue.last is small


def test_of_one_tenant_the_lowest_band_has_to_go_first() -> None:
    queue = queue_of()
    low, _high = push(queue, claim("a", band=Band.LOW), claim("a", band=Band.HIGH))
    assert queue.last is low


def test_nobody_who_has_had_a_turn_has_to_go() -> None:
    queue = queue_of(limit=0)
    (entry,) = push(queue, claim())
    queue.take(entry)
    queue.push(entry)
    assert queue.over_limit
    assert queue.last is None


@pytest.mark.parametrize(("early", "gone_at_s"), [(True, 7.0), (False, 20.0)])
def test_a_promise_that_cannot_be_kept_is_given_up_early_on_demand(early: bool, gone_at_s: float) -> None:
    rules = replace(PLAIN, give_up_early=early)
    assert rules.lapse_s(replace(claim(), deadline_s=20.0, promise_s=10.0, first_token_s=3.0)) == gone_at_s


@pytest.mark.parametrize(
    "wrong", [{"stretch": 0.5}, {"band_share": 1.0}, {"classes": {"a": 0.0}}, {"output_weight": -1.0}]
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(PLAIN, **wrong)  # type: ignore[arg-type]  # keywords of several types in one dict
