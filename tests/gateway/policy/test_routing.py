"""Who decodes, who prefills, and by which way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.need import Need
from gateway.policy.routing import (
    Dead,
    DecodeCandidate,
    Fleet,
    Link,
    NoRoute,
    Path,
    Placement,
    PrefillCandidate,
    Rules,
    Wait,
    able_to_decode,
    place,
)
from proto.worker import Role

RULES = Rules(local_below_tokens=16, prefill_here_if_none=False)
NEED = Need(prompt_tokens=100, growth_tokens=100, answers=1)


def decode(name: str = "d0", free: int = 100, role: Role = Role.DECODE, **more: int | bool) -> DecodeCandidate:
    base = DecodeCandidate(name, role, 4096, 16, 1000, free, 64)
    return replace(base, **more)  # type: ignore[arg-type]  # keywords of several types in one dict


def prefill(name: str = "p0", outstanding: int = 0, role: Role = Role.PREFILL, speed: float = 0.0) -> PrefillCandidate:
    return PrefillCandidate(name, role, outstanding, speed)


def fleet(decodes: list[DecodeCandidate], prefills: list[PrefillCandidate], linked: bool = True) -> Fleet:
    links = {worker.worker_id: {other.worker_id: Link("shm") for other in prefills} for worker in decodes}
    return Fleet(tuple(decodes), tuple(prefills), links if linked else {})


def placed(fleet: Fleet, need: Need = NEED, rules: Rules = RULES, **more: set[str]) -> Placement:
    outcome = place(need, fleet, rules, **more)
    assert isinstance(outcome, Placement), outcome
    return outcome


def test_most_free_kv_after_growth_wins() -> None:
    assert placed(fleet([decode("d0", 20), decode("d1", 50), decode("d2", 30)], [prefill()])).worker_id == "d1"


def test_free_kv_is_judged_relative_to_size() -> None:
    small, large = decode("small", 90, blocks_total=100), decode("large", 200, blocks_total=1000)
    assert placed(fleet([small, large], [prefill()])).worker_id == "small"


def test_workers_to_avoid_come_last_but_are_used_if_there_is_no_other() -> None:
    both = fleet([decode("d0", 20), decode("d1", 500)], [prefill()])
    assert placed(both, avoid={"d1"}).worker_id == "d0"
    assert placed(fleet([decode("d1")], [prefill()]), avoid={"d1"}).worker_id == "d1"


def test_no_room_now_is_a_wait_with_numbers() -> None:
    outcome = place(NEED, fleet([decode(free=5), decode("d1", free=9)], [prefill()]), RULES)
    assert outcome == Wait(blocks_needed=13, blocks_free=9, blocks_total=1000)


@pytest.mark.parametrize("rules", [RULES, Rules(16, prefill_here_if_none=True)])
def test_a_worker_without_places_in_its_batch_for_every_answer_is_not_asked(rules: Rules) -> None:
    crowded = fleet([decode("d0", 500, slots_free=1), decode("d1", 50, slots_free=2)], [prefill()])
    two = Need(prompt_tokens=100, growth_tokens=100, answers=2)
    assert placed(crowded, two, rules).worker_id == "d1"
    able = able_to_decode(two, crowded, rules)
    assert not isinstance(able, Wait | NoRoute)
    assert [one.worker_id for one in able] == ["d1"]
    three = Need(prompt_tokens=100, growth_tokens=100, answers=3)
    assert isinstance(place(three, crowded, rules), Wait)
    assert isinstance(able_to_decode(three, crowded, rules), Wait)


def test_a_worker_that_has_just_refused_is_not_asked() -> None:
    assert isinstance(place(NEED, fleet([decode(closed=True)], [prefill()]), RULES), Wait)


@pytest.mark.parametrize(
    ("need", "why"),
    [
        (Need(100, 20_000, 1), Dead.NEVER_FITS),
        (Need(100, 64 * 16_000, 64), Dead.NEVER_FITS),
        (Need(10, 650, 65), Dead.NEVER_FITS),
        (Need(5000, 1, 1), Dead.TOO_LONG),
    ],
)
def test_b55_what_never_fits_is_told_apart_from_what_does_not_fit_now(need: Need, why: Dead) -> None:
    outcome = place(need, fleet([decode(free=0)], [prefill()]), RULES)
    assert isinstance(outcome, NoRoute)
    assert outcome.why is why


def test_b40_b43_without_a_usable_pair_no_decode_worker_is_chosen() -> None:
    for lonely in (fleet([decode()], []), fleet([decode()], [prefill()], linked=False)):
        outcome = place(NEED, lonely, RULES)
        assert isinstance(outcome, NoRoute)
        assert outcome.why is Dead.NO_PREFILL
        assert placed(lonely, rules=replace(RULES, prefill_here_if_none=True)).reason == "no_prefill_worker"


def test_no_decode_worker() -> None:
    outcome = place(NEED, fleet([], [prefill()]), RULES)
    assert isinstance(outcome, NoRoute)
    assert outcome.why is Dead.NO_DECODE


def test_a_decode_worker_with_a_partner_is_preferred_to_one_without() -> None:
    one = Fleet((decode("d0", 20), decode("d1", 500)), (prefill(),), {"d0": {"p0": Link("shm")}})
    assert placed(one) == Placement("d0", Path.REMOTE, "handoff")


@pytest.mark.parametrize(
    ("prompt", "cached", "path", "reason"),
    [
        (15, 0, Path.LOCAL, "short"),
        (16, 0, Path.REMOTE, "handoff"),
        (100, 96, Path.LOCAL, "cached"),
        (100, 80, Path.REMOTE, "handoff"),
        (112, 112, Path.LOCAL, "cached"),
    ],
)
def test_short_and_cached_prompts_stay_local(prompt: int, cached: int, path: Path, reason: str) -> None:
    outcome = placed(fleet([decode(cached_tokens=cached)], [prefill()]), Need(prompt, 100, 1))
    assert (outcome.path, outcome.reason) == (path, reason)


def test_a_threshold_of_zero_always_hands_off() -> None:
    rules = replace(RULES, local_below_tokens=0)
    assert placed(fleet([decode(cached_tokens=0)], [prefill()]), Need(1, 100, 1), rules).path is Path.REMOTE
    assert placed(fleet([decode(cached_tokens=96)], [prefill()]), Need(97, 100, 1), rules).path is Path.REMOTE


def test_workers_of_both_roles_are_colocated_unless_prefill_workers_would_idle() -> None:
    both = decode("b0", role=Role.BOTH)
    assert placed(fleet([both], [prefill("b0", role=Role.BOTH)])).path is Path.COLOCATED
    assert placed(fleet([both, decode("d0", 1)], [prefill()])).path is Path.COLOCATED
    assert placed(fleet([both], [prefill()])).path is Path.REMOTE


@given(
    st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.sampled_from(Role)), max_size=6),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_placement_always_has_room_and_a_way(
    workers: list[tuple[int, bool, Role]], prompt: int, growth: int, answers: int, linked: bool
) -> None:
    decodes = [decode(f"w{i}", free, role, closed=shut) for i, (free, shut, role) in enumerate(workers) if role.decodes]
    prefills = [prefill(f"w{i}", role=role) for i, (_, _, role) in enumerate(workers) if role.prefills]
    need, one = Need(prompt, growth, answers), fleet(decodes, prefills, linked)
    outcome = place(need, one, RULES)
    if isinstance(outcome, Placement):
        chosen = next(worker for worker in decodes if worker.worker_id == outcome.worker_id)
        assert chosen.free_after(need) >= 0
        assert not chosen.closed
        assert (outcome.path is Path.COLOCATED) <= (chosen.role is Role.BOTH)
        assert (outcome.path is Path.REMOTE) <= bool(one.partners(chosen.worker_id))


FORECAST = Need(prompt_tokens=100, growth_tokens=1000, answers=1, likely_tokens=60)


def forecasting(name: str, headroom: float, free: int = 900) -> DecodeCandidate:
    return replace(decode(name, free), headroom_blocks=headroom)


def test_a_worker_that_has_not_told_its_forecast_is_not_preferred_for_it() -> None:
    """The pool that the others keep back would make all prompts of a beginning go to the one that is still silent."""
    need = replace(NEED, likely_tokens=100)
    told = replace(decode("told", 990), headroom_blocks=970.0)
    silent = decode("silent", 985)
    assert placed(fleet([told, silent], [prefill()]), need).worker_id == "told"


def test_by_forecast_the_most_room_after_growth_wins_whatever_is_free_now() -> None:
    """R-41: the worker that is emptier now has promised more."""
    both = fleet([forecasting("d0", 40.0, free=800), forecasting("d1", 300.0, free=400)], [prefill()])
    assert placed(both, FORECAST).worker_id == "d1"
    assert placed(both, NEED).worker_id == "d0"  # growth that is reserved in full needs what is free


def test_a_worker_with_room_for_the_start_alone_is_asked_by_one_prompt_at_a_time() -> None:
    likely, start = FORECAST.likely_blocks(16), FORECAST.start_blocks(16)
    assert start < likely
    tight = forecasting("d0", float(likely - 1))
    assert placed(fleet([tight], [prefill()]), FORECAST).worker_id == "d0"
    assert isinstance(place(FORECAST, fleet([replace(tight, asked=True)], [prefill()]), RULES), Wait)
    assert isinstance(place(FORECAST, fleet([forecasting("d0", start - 1.0)], [prefill()]), RULES), Wait)
    assert isinstance(
        place(FORECAST, fleet([forecasting("d0", likely - 1.0, free=start - 1)], [prefill()]), RULES), Wait
    )


def test_what_clients_declare_must_fit_an_empty_worker_whatever_is_likely() -> None:
    outcome = place(replace(FORECAST, growth_tokens=4000), fleet([decode(blocks_total=200)], [prefill()]), RULES)
    assert isinstance(outcome, NoRoute)
    assert outcome.why is Dead.NEVER_FITS


def test_an_empty_worker_is_asked_for_a_prompt_that_needs_its_emergency_pool() -> None:
    """It waited at the head of the line until its deadline, and everybody behind it, with nothing running at all."""
    large = Need(prompt_tokens=990 * 16, growth_tokens=32, answers=1, likely_tokens=32)
    window = 20_000
    empty = replace(forecasting("d0", 980.0, free=1000), window=window)
    assert placed(fleet([empty], [prefill()]), large).worker_id == "d0"
    used = replace(empty, blocks_free=999, headroom_blocks=979.0)
    assert isinstance(place(large, fleet([used], [prefill()]), RULES), Wait)
    assert isinstance(place(large, fleet([replace(empty, asked=True)], [prefill()]), RULES), Wait)


def _candidate(number: int, draw: st.DrawFn) -> DecodeCandidate:
    total = draw(st.sampled_from((10, 40, 100)))
    return DecodeCandidate(
        f"d{number}",
        draw(st.sampled_from((Role.DECODE, Role.BOTH))),
        draw(st.sampled_from((200, 4096))),
        draw(st.sampled_from((16, 32))),
        total,
        draw(st.integers(0, total)),
        draw(st.sampled_from((1, 64))),
        draw(st.sampled_from((0, 0, 32))),
        closed=draw(st.integers(0, 4)) == 0,
        headroom_blocks=draw(st.one_of(st.none(), st.integers(-20, total))) if draw(st.booleans()) else float(total),
        asked=draw(st.booleans()),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    decodes = [_candidate(number, draw) for number in range(draw(st.integers(1, 6)))]
    return fleet(decodes, [prefill()] if draw(st.booleans()) else [], linked=draw(st.booleans()))


@given(
    fleets(),
    st.builds(Need, st.integers(1, 300), st.integers(1, 300), st.just(1), st.sampled_from((0, 40))),
    st.sets(st.sampled_from(("d0", "d1", "d2"))),
)
def test_a_look_at_the_roomiest_finds_what_a_look_at_all_would(there: Fleet, need: Need, avoid: set[str]) -> None:
    rules = Rules(16, prefill_here_if_none=False)
    fitting = able_to_decode(need, there, rules)
    found = place(need, there, rules, avoid)
    if isinstance(fitting, Wait | NoRoute):
        assert found == fitting
        return
    told = all(one.headroom_blocks is not None for one in fitting)

    def rank(one: DecodeCandidate) -> tuple[bool, float, int]:
        left = one.free_after(need) if told else one.unreserved_after(need)
        return one.worker_id not in avoid, left / one.blocks_total, one.cached_tokens

    assert isinstance(found, Placement)
    chosen = next(one for one in fitting if one.worker_id == found.worker_id)
    assert rank(chosen) == max(map(rank, fitting))
