"""Several prompts of one request: all of them get a place, or none."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.bid import Bid
from gateway.policy.dispatch import Dispatch
from gateway.policy.group import Member, place_group, together
from gateway.policy.need import Need
from gateway.policy.prefix import BlockHashes, PrefixKey
from gateway.policy.routing import Dead, DecodeCandidate, Fleet, NoRoute, Outlook, Placement, Rules, Wait, place
from gateway.policy.turned_away import TurnedAway
from proto.worker import Role
from tests.gateway.policy.test_dispatch import Site

RULES = Rules(0, False)


def worker(name: str, free: int, total: int = 10, slots: int = 8) -> DecodeCandidate:
    return DecodeCandidate(name, Role.BOTH, 1000, 1, total, free, slots)


def members(*blocks: int) -> list[Member]:
    return [Member(Need(each - 1, 1, 1), PrefixKey((), ""), set(), set()) for each in blocks]


def placed(blocks: list[int], *workers: DecodeCandidate) -> Outlook:
    def view(_: BlockHashes) -> Fleet:
        return Fleet(workers, (), {})

    return place_group(members(*blocks), view, RULES, place)


def test_each_goes_where_it_would_go_if_those_before_it_were_there() -> None:
    outlook = placed([5, 5, 4], worker("a", 10), worker("b", 9))
    assert isinstance(outlook, Placement)
    assert [one.worker_id for one in (outlook, *outlook.also)] == ["a", "b", "a"]


def test_while_one_of_them_has_no_room_none_has() -> None:
    assert placed([5, 5], worker("a", 9)) == Wait(blocks_needed=10, blocks_free=9, blocks_total=10)


def test_what_could_not_fit_into_empty_workers_is_hopeless_though_each_alone_would() -> None:
    outlook = placed([6, 6], worker("a", 10))
    assert isinstance(outlook, NoRoute)
    assert outlook.why is Dead.TOGETHER
    assert (outlook.numbers["blocks_needed"], outlook.numbers["blocks_total"]) == (12, 10)
    assert isinstance(placed([6, 6], worker("a", 10), worker("b", 3)), Wait)


def test_answers_of_all_prompts_share_the_slots() -> None:
    outlook = placed([1, 1, 1], worker("a", 10, slots=2))
    assert isinstance(outlook, NoRoute)
    assert (outlook.why, outlook.numbers["answers"], outlook.numbers["slots_total"]) == (Dead.TOGETHER, 3, 2)


def test_answers_of_all_prompts_share_the_slots_that_are_free_and_wait_for_more() -> None:
    assert isinstance(placed([1, 1, 1], replace(worker("a", 10), slots_free=2)), Wait)
    assert isinstance(placed([1, 1, 1], replace(worker("a", 10), slots_free=3)), Placement)


def test_a_worker_is_tried_beyond_the_room_that_is_known_but_not_with_what_can_never_fit() -> None:
    """It would be granted in part and given back, again and again."""

    def seated(likely_tokens: int) -> Outlook:
        each = Member(Need(1, 8, 1, likely_tokens=likely_tokens), PrefixKey((), ""), set(), set())
        roomy = replace(worker("a", 10), headroom_blocks=8.0)
        return place_group([each, each], lambda _: Fleet((roomy,), (), {}), RULES, place)

    assert isinstance(seated(4), Placement)
    hopeless = seated(5)
    assert isinstance(hopeless, NoRoute)
    assert hopeless.why is Dead.TOGETHER


def test_a_prompt_that_fits_nowhere_by_itself_is_named_as_such() -> None:
    outlook = placed([1, 11], worker("a", 0))
    assert isinstance(outlook, NoRoute)
    assert outlook.why is Dead.NEVER_FITS


@given(
    blocks=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    frees=st.lists(st.integers(0, 10), min_size=1, max_size=3),
)
def test_no_worker_is_given_more_than_it_has(blocks: list[int], frees: list[int]) -> None:
    workers = [worker(str(index), free) for index, free in enumerate(frees)]
    outlook = placed(blocks, *workers)
    if isinstance(outlook, Placement):
        assert len(outlook.also) == len(blocks) - 1
        for one in workers:
            places = zip((outlook, *outlook.also), blocks, strict=True)
            assert sum(size for its, size in places if its.worker_id == one.worker_id) <= one.blocks_free


def joined(dispatch: Dispatch[str], *blocks: int) -> Bid:
    parts = tuple(Bid("r", each.need, each.prefix, dispatch.arrive()) for each in members(*blocks))
    whole = together([part.need for part in parts])
    return replace(parts[0], need=whole, arrival=dispatch.arrive(), parts=parts)


def test_a_request_of_several_waits_in_one_place_and_is_not_overtaken() -> None:
    site = Site(free=9)
    dispatch = site.dispatch()
    dispatch.enter(joined(dispatch, 5, 5), "two")
    dispatch.enter(joined(dispatch, 1, 1), "small")
    assert len(dispatch) == 2
    assert site.serve(dispatch) == []
    site.free = 10
    turns = dispatch.turns()
    ask, verdict = next(turns)
    assert ask.item == "two"
    assert isinstance(verdict, Placement)
    assert len(verdict.also) == 1


def test_hopeless_ones_are_turned_away_at_once() -> None:
    dispatch = Site(free=0).dispatch()
    verdict = dispatch.enter(joined(dispatch, 6, 6), "two")
    assert isinstance(verdict, TurnedAway)
    assert len(dispatch) == 0
