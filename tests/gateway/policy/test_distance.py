"""Near pairs first, among ways that are as good otherwise; as ever where nobody says where it stands (R-35)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.distance import Distance, distance
from gateway.policy.fleet import DecodeCandidate, Fleet, Link, PrefillCandidate
from gateway.policy.prefill_choice import away, choose_prefill, in_turn
from gateway.policy.routing import ALIKE, Placement
from proto.worker import Topology
from tests.gateway.policy.test_routing import decode, placed, prefill

A1 = Topology("h1", nvlink_domain="n1", node="n1", rack="A")
A2 = Topology("h2", nvlink_domain="n2", node="n2", rack="A")
B1 = Topology("h3", nvlink_domain="n3", node="n3", rack="B")


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (A1, replace(A1, host="h9"), Distance.DOMAIN),
        (A1, replace(A1, nvlink_domain=""), Distance.NODE),
        (A1, A2, Distance.RACK),
        (A1, B1, Distance.APART),
        (A1, Topology("h1"), Distance.APART),
        (Topology("h1", nvlink_domain="n1"), Topology("h1", nvlink_domain="n1"), Distance.APART),  # nobody has said it
        (Topology("h1", node="n1"), Topology("h2", node="n2"), Distance.APART),
    ],
)
def test_workers_are_as_near_as_the_narrowest_place_that_they_share(
    one: Topology, other: Topology, apart: Distance
) -> None:
    assert distance(one, other) is distance(other, one) is apart


def link(apart: Distance, speed: float = 0.0) -> Link:
    return Link("rdma", speed, apart)


def fleet(decodes: list[DecodeCandidate], prefills: list[PrefillCandidate], near: set[tuple[str, str]]) -> Fleet:
    """All are linked; those in `near` share a node, the others nothing."""
    links = {
        one.worker_id: {
            other.worker_id: link(Distance.NODE if (other.worker_id, one.worker_id) in near else Distance.APART)
            for other in prefills
        }
        for one in decodes
    }
    return Fleet(tuple(decodes), tuple(prefills), links)


def test_of_two_with_as_much_room_the_one_near_its_prefill_worker_decodes() -> None:
    decodes = [decode("d0", 505, placed=True), decode("d1", 500, placed=True)]
    assert placed(fleet(decodes, [prefill()], {("p0", "d1")})).worker_id == "d1"
    assert placed(fleet(decodes, [prefill()], set())).worker_id == "d0"


def test_more_room_goes_before_nearness() -> None:
    decodes = [decode("d0", 500 + round(1000 * ALIKE) + 1, placed=True), decode("d1", 500, placed=True)]
    assert placed(fleet(decodes, [prefill()], {("p0", "d1")})).worker_id == "d0"


def test_a_prompt_that_is_cached_is_not_left_for_a_nearer_worker() -> None:
    decodes = [decode("d0", 500, cached_tokens=64, placed=True), decode("d1", 500, placed=True)]
    assert placed(fleet(decodes, [prefill()], {("p0", "d1")})).worker_id == "d0"


def test_near_is_who_would_compute_it_now_and_not_who_is_busy() -> None:
    decodes = [decode("d0", 505, placed=True), decode("d1", 500, placed=True)]
    busy = [prefill("p0", 50_000), prefill("p1")]
    near = {("p0", "d1")}
    assert placed(fleet(decodes, busy, near)).worker_id == "d0"
    assert placed(fleet(decodes, [prefill("p0"), prefill("p1")], near)).worker_id == "d1"


def test_the_nearer_prefill_worker_computes_where_kv_would_arrive_as_early() -> None:
    links = {"p0": link(Distance.APART, 1.02e9), "p1": link(Distance.NODE, 1e9)}
    assert choose_prefill(1000, 100_000, [prefill("p0"), prefill("p1")], links) == "p1"
    assert choose_prefill(1000, 100_000, [prefill("p0"), prefill("p1", 2000)], links) == "p0"
    assert choose_prefill(1000, 100_000, [prefill("p0"), prefill("p1")], links, avoid={"p1"}) == "p0"


@given(
    busy=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    linked=st.lists(st.none() | st.sampled_from(Distance), min_size=6, max_size=6),
)
def test_how_far_the_one_is_that_would_be_chosen_is_known_without_a_look_at_all(
    busy: list[int], linked: list[Distance | None]
) -> None:
    """Each of 64 decode workers looked at each of 64 that compute, for every prompt: 1.7 ms of the event loop."""
    prefills = [prefill(f"p{n}", tokens) for n, tokens in enumerate(busy)]
    links = {f"p{n}": link(apart) for n, apart in enumerate(linked[: len(busy)]) if apart is not None}
    chosen = choose_prefill(1000, 0, prefills, links)
    found = away(in_turn(1000, prefills), links, "d0")
    assert found is (Distance.APART if chosen is None else links[chosen].distance)


@given(
    frees=st.lists(st.integers(20, 60), min_size=2, max_size=5),
    busy=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    speeds=st.lists(st.floats(1e8, 1e10), min_size=4, max_size=4),
)
def test_where_nobody_says_where_it_stands_all_is_as_ever(
    frees: list[int], busy: list[int], speeds: list[float]
) -> None:
    """Nearness is nothing but a choice among those alike: with all pairs as far apart the first by the old rule is taken."""
    prefills = [prefill(f"p{n}", tokens) for n, tokens in enumerate(busy)]
    links = {one.worker_id: Link("rdma", speed) for one, speed in zip(prefills, speeds, strict=False)}

    def cost(one: PrefillCandidate) -> tuple[float, str]:
        tokens = one.outstanding_tokens + 100
        return tokens / 5000.0 + 100 * 1000 / links[one.worker_id].bytes_per_s, one.worker_id

    assert choose_prefill(100, 1000, prefills, links) == min(prefills, key=cost).worker_id
    decodes = [decode(f"d{n}", free) for n, free in enumerate(frees)]
    told = [replace(one, placed=True) for one in decodes]
    silent, same = placed(fleet(decodes, prefills, set())), placed(fleet(told, prefills, set()))
    assert isinstance(silent, Placement)
    assert silent == same
    assert silent.worker_id == f"d{frees.index(max(frees))}"
