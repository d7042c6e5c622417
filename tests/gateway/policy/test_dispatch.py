"""Whose turn it is, driven by hand: no event loop, no workers, a clock that stands still."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.admission import Entry, FifoQueue
from gateway.policy.bid import Ask, Bid
from gateway.policy.control.plan import needed
from gateway.policy.dispatch import Dispatch
from gateway.policy.need import Need
from gateway.policy.prefix import BlockHashes, PrefixKey
from gateway.policy.routing import DecodeCandidate, Fleet, NoRoute, Placement, Rules
from gateway.policy.standing import REOPEN_S, Door, PrefillSpeed
from gateway.policy.turned_away import TurnedAway, Why
from proto.worker import Role
from tests.examples import examples

TOTAL = 10


@dataclass
class Site:
    """One colocated worker of ten blocks of one token; `final` is what is said of a NoRoute."""

    free: int = TOTAL
    workers: int = 1
    final: bool = True
    gone: set[str] = field(default_factory=set)

    def dispatch(self, limit: int = 100) -> Dispatch[str]:
        line: FifoQueue[Ask[str]] = FifoQueue(limit)
        return Dispatch(
            line, Rules(0, False), self.view, lambda _: self.final, lambda: 0.0, gone=self.gone.__contains__
        )

    def view(self, prefix: BlockHashes) -> Fleet:
        one = DecodeCandidate("w", Role.BOTH, 1000, 1, TOTAL, self.free, 100)
        return Fleet((one,) * self.workers, (), {})

    def serve(self, dispatch: Dispatch[str]) -> list[str]:
        """Everyone whose turn it is; takes their blocks."""
        served = []
        for ask, verdict in dispatch.turns():
            if isinstance(verdict, Placement):
                self.free -= ask.bid.need.blocks(1)
            served.append(ask.item)
        return served


def bid(dispatch: Dispatch[str], blocks: int, name: str = "") -> Bid:
    return Bid(name, Need(blocks - 1, 1, 1), PrefixKey((), ""), dispatch.arrive())


def test_whoever_finds_room_and_no_queue_takes_it() -> None:
    dispatch = Site().dispatch()
    assert isinstance(dispatch.enter(bid(dispatch, 5), "a"), Placement)
    assert len(dispatch) == 0


def test_nobody_overtakes_the_head() -> None:
    site = Site(free=3)
    dispatch = site.dispatch()
    assert isinstance(dispatch.enter(bid(dispatch, 5), "big"), Entry)
    assert isinstance(dispatch.enter(bid(dispatch, 2), "small"), Entry)
    assert site.serve(dispatch) == []
    site.free = 6
    assert site.serve(dispatch) == ["big"]
    site.free = 10
    assert site.serve(dispatch) == ["small"]


def test_who_waits_may_insist_on_a_worker_that_seems_full_and_nobody_else_may() -> None:
    site = Site(free=0)
    dispatch = site.dispatch()
    assert dispatch.insist("w") is None
    dispatch.enter(bid(dispatch, 5), "first")
    dispatch.enter(bid(dispatch, 2), "second")
    assert dispatch.insist("elsewhere") is None
    turn = dispatch.insist("w")
    assert turn is not None
    assert (turn[0].item, turn[1].worker_id, len(dispatch)) == ("first", "w", 1)
    site.free = 10
    assert dispatch.insist("w") is None  # there is room: its turn comes by itself


def test_what_can_never_be_is_refused_unless_somebody_is_about_to_come_back() -> None:
    site = Site(workers=0)
    dispatch = site.dispatch()
    verdict = dispatch.enter(bid(dispatch, 5), "a")
    assert isinstance(verdict, TurnedAway)
    assert verdict.why is Why.NO_ROUTE
    assert isinstance(verdict.outlook, NoRoute)
    site.final = False
    assert isinstance(dispatch.enter(bid(dispatch, 5), "b"), Entry)
    site.workers = 1
    assert site.serve(dispatch) == ["b"]


def test_the_last_goes_when_the_line_is_too_long_but_not_who_was_sent_back() -> None:
    site = Site(free=0)
    dispatch = site.dispatch(limit=1)
    sent_back, second = bid(dispatch, 5), bid(dispatch, 5)
    sent_back.asks = 1
    dispatch.enter(second, "second")
    assert list(dispatch.overflow()) == []
    dispatch.enter(sent_back, "sent back")
    away = list(dispatch.overflow())
    assert [(ask.item, verdict.why) for ask, verdict in away] == [("second", Why.QUEUE_FULL)]
    assert len(dispatch) == 1


def test_whoever_is_gone_is_passed_over() -> None:
    site = Site(free=0)
    dispatch = site.dispatch()
    for name in ("a", "b"):
        dispatch.enter(bid(dispatch, 2), name)
    site.gone.add("a")
    site.free = 10
    assert site.serve(dispatch) == ["b"]


def test_a_door_opens_with_news_or_with_time() -> None:
    door = Door()
    assert not door.closed(0.0)
    door.refused(1.0)
    assert door.closed(1.0 + REOPEN_S / 2)
    assert not door.closed(1.0 + REOPEN_S)
    door.refused(2.0)
    door.changed()
    assert not door.closed(2.0)


def test_prefill_speed_moves_towards_the_newest() -> None:
    speed = PrefillSpeed()
    speed.measured(1000, 1.0, 1.0)
    assert speed.tokens_per_s == 1000
    speed.measured(2000, 1.0, 2.0)
    assert 1000 < speed.tokens_per_s < 2000
    known = speed.tokens_per_s
    speed.measured(0, 1.0, 3.0)
    assert speed.tokens_per_s == known


def test_prompts_that_share_the_steps_of_an_engine_do_not_make_it_look_slow() -> None:
    """Four prompts of 2,000 tokens in each step of one second, which is what each of them took."""
    speed = PrefillSpeed()
    for step in range(1, 31):
        for _ in range(4):
            speed.measured(2000, 1.0, float(step))
    assert speed.tokens_per_s == pytest.approx(8000, rel=0.1)


def test_the_rest_of_a_cached_prompt_measures_a_step_and_no_speed() -> None:
    """Conversations are mostly cached: their few computed tokens made every long prompt look hopeless."""
    speed = PrefillSpeed()
    for n in range(100):
        speed.measured(7, 0.02, 0.02 * n)
    assert speed.tokens_per_s == 0
    speed.measured(20_000, 1.0, 3.0)
    for n in range(100):
        speed.measured(7, 0.02, 3.0 + 0.02 * n)
    assert speed.tokens_per_s == 20_000


def test_an_estimate_never_asks_for_more_than_there_is_and_a_declaration_is_believed() -> None:
    facts = {"default_output_tokens": 1000, "window": 5000, "kv_tokens": 600}
    assert needed(100, 1, 4000, declared=False, **facts).growth_tokens == 500
    assert needed(100, 1, 4000, declared=True, **facts).growth_tokens == 4000


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(2, TOTAL)), max_size=40))
def test_served_in_order_of_arrival_and_never_more_than_fits(moves: list[tuple[bool, int]]) -> None:
    site = Site()
    dispatch = site.dispatch()
    entered: list[str] = []
    served: list[str] = []
    held: list[int] = []
    sizes: dict[str, int] = {}
    for number, (arrives, blocks) in enumerate(moves):
        if arrives:
            name = str(number)
            sizes[name] = blocks
            entered.append(name)
            verdict = dispatch.enter(bid(dispatch, blocks), name)
            if isinstance(verdict, Placement):
                site.free -= blocks
                held.append(blocks)
                served.append(name)
        elif held:
            site.free += held.pop(0)
        now = site.serve(dispatch)
        served += now
        held += [sizes[name] for name in now]
        assert site.free >= 0
    assert served == entered[: len(served)]
    assert len(dispatch) == len(entered) - len(served)
