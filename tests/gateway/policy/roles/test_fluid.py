"""Which way a prompt goes, and what the books keep."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.need import Need
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.routing import DecodeCandidate, Fleet, Link, NoRoute, Path, Placement, PrefillCandidate, Rules
from proto.worker import Role, StepTotals

RULES = Rules(local_below_tokens=0, prefill_here_if_none=True)
NAMES = ("w0", "w1", "w2", "w3")
SHORT, LONG = Need(2000, 10, 1), Need(100, 4000, 1)


def both(names: tuple[str, ...] = NAMES, blocks: int = 10_000) -> Fleet:
    decodes = tuple(DecodeCandidate(name, Role.BOTH, 32_768, 16, blocks, blocks, 256) for name in names)
    prefills = tuple(PrefillCandidate(name, Role.BOTH, 0) for name in names)
    links = {name: {other: Link("nvlink", 1e11) for other in names if other != name} for name in names}
    return Fleet(decodes, prefills, links)


class World:
    def __init__(self, tpot_s: float = 0.05, knobs: Knobs | None = None) -> None:
        self.now_s = 0.0
        self.fluid = Fluid(Aims(1.0, tpot_s), lambda: self.now_s, knobs)
        self.fleet = both()
        self.count = 0

    def send(self, need: Need) -> Placement:
        placement = self.fluid.place(need, self.fleet, RULES)
        assert isinstance(placement, Placement)
        self.count += 1
        self.fluid.taken(str(self.count), placement, need)
        return placement

    def decode(self, worker: str, steps: int, seconds: float) -> None:
        """Everyone there gives so many tokens in so many seconds."""
        self.now_s += seconds
        self.fluid.stepped(worker, StepTotals(steps, steps * 0.02, steps, 2000 * steps))

    def code_for(self, seconds: float, per_s: float) -> list[Placement]:
        """Long prompts and short answers; each is over a second later."""
        sent = []
        for n in range(round(seconds * per_s)):
            self.now_s = n / per_s
            sent.append(self.send(SHORT))
            done = self.count - round(per_s)
            self.fluid.prefilled(str(done))
            self.fluid.ended(str(done))
        return sent


def test_prompts_spread_by_what_is_in_hand() -> None:
    world = World(knobs=Knobs(leans=False))
    assert sorted(world.send(SHORT).worker_id for _ in NAMES) == list(NAMES)


def test_a_cached_prompt_goes_where_it_is_cached() -> None:
    world = World()
    decodes = (*world.fleet.decodes[:2], replace(world.fleet.decodes[2], cached_tokens=1990), world.fleet.decodes[3])
    world.fleet = replace(world.fleet, decodes=decodes)
    assert world.send(SHORT).worker_id == "w2"


def test_a_worker_whose_batch_is_nearly_full_is_not_taken_for_an_empty_one() -> None:
    """Short answers leave KV free, and still wait for a place in the batch. By KV alone the answers went where the KV was."""
    world = World()
    for at in range(30):
        world.fluid.taken(f"small {at}", Placement("w0", Path.COLOCATED, ""), Need(10, 10, 1))
    for at in range(12):
        for name in ("w1", "w2", "w3"):
            world.fluid.taken(f"large {name} {at}", Placement(name, Path.COLOCATED, ""), Need(3000, 500, 1))
    for key in list(world.fluid._trips):
        world.fluid.prefilled(key)
    by_kv = world.fluid.place(SHORT, world.fleet, RULES)
    decodes = tuple(replace(one, engine_slots=32) for one in world.fleet.decodes)
    by_both = world.fluid.place(SHORT, replace(world.fleet, decodes=decodes), RULES)
    assert isinstance(by_kv, Placement)
    assert by_kv.worker_id == "w0"
    assert isinstance(by_both, Placement)
    assert by_both.worker_id != "w0"


def test_a_prompt_wants_as_many_places_of_the_batch_as_it_has_answers() -> None:
    world = World()
    decodes = tuple(replace(one, engine_slots=32) for one in world.fleet.decodes)
    placement = world.fluid.place(Need(100, 40, 8), replace(world.fleet, decodes=decodes), RULES)
    assert isinstance(placement, Placement)
    assert placement.ways[0].room_share == 8 / 32


def test_where_steps_are_short_for_want_of_room_a_prompt_may_take_no_more_than_is_left_of_them() -> None:
    world = World(knobs=Knobs(leans=False))
    book = world.fluid.book("w0")
    for at in range(30):
        world.fluid.taken(f"answer {at}", Placement("w0", Path.COLOCATED, ""), Need(100, 2000, 1))
        world.fluid.prefilled(f"answer {at}")
    book.kv_tokens = 1000.0
    world.fluid.taken("prompt", Placement("w0", Path.COLOCATED, ""), Need(200, 2000, 1))
    assert world.fluid.budget("w0") < book.most_tokens(world.fluid.law, world.fluid.aims, world.fluid.knobs)
    assert world.fluid.chunk_tokens("w0") == world.fluid.budget("w0") - 30


def test_nobody_leans_where_answers_need_the_places_of_every_batch() -> None:
    few, plenty = World(tpot_s=0.028), World(tpot_s=0.028)
    few.fleet = replace(few.fleet, decodes=tuple(replace(one, engine_slots=2) for one in few.fleet.decodes))
    for world in (few, plenty):
        world.code_for(20.0, 10.0)
    assert plenty.fluid.leaning
    assert not few.fluid.leaning


def test_under_a_tight_limit_long_prompts_are_computed_apart() -> None:
    world = World(tpot_s=0.028)
    late = world.code_for(20.0, 10.0)[100:]
    assert 1 <= len(world.fluid.leaning) <= 3
    remote = [one for one in late if one.path is Path.REMOTE]
    assert len(remote) > len(late) / 2
    assert all(one.prefill_id in world.fluid.leaning and one.worker_id not in world.fluid.leaning for one in remote)


def test_who_may_not_lean_hands_nothing_off() -> None:
    world = World(tpot_s=0.028, knobs=Knobs(leans=False))
    assert {one.path for one in world.code_for(5.0, 10.0)} == {Path.COLOCATED}


def test_a_full_decode_side_does_not_stop_the_fleet() -> None:
    world = World()
    world.fleet = both(blocks=300)
    large = Need(3500, 500, 1)
    world.fluid.place(large, world.fleet, RULES)  # it has looked who should lean, and will not again for a while
    world.fluid.leaning = {"w0"}
    assert sorted(world.send(large).worker_id for _ in range(3)) == ["w1", "w2", "w3"]
    assert world.send(large) == Placement("w0", Path.COLOCATED, "fluid")


def test_prompts_make_no_step_of_an_answer_longer_than_the_aim_unless_it_has_saved_time() -> None:
    world = World(knobs=Knobs(foresight=0.0))
    fluid = world.fluid
    place = Placement("w0", Path.COLOCATED, "")
    assert fluid.chunk_tokens("w0") == fluid.knobs.largest_step_tokens
    fluid.taken("a", place, LONG)
    fluid.prefilled("a")
    tight = fluid.chunk_tokens("w0")
    assert fluid.law.step_s(1, 2100, tight) <= 0.05
    world.decode("w0", 1000, 20.0)
    assert fluid.chunk_tokens("w0") > 1.1 * tight
    world.decode("w0", 1000, 90.0)
    assert fluid.chunk_tokens("w0") < tight


def test_where_steps_are_short_an_answer_may_spend_a_little_before_it_has_saved_it() -> None:
    steps_s = []
    for step_s in (0.048, 0.02):
        world = World()
        fluid, place = world.fluid, Placement("w0", Path.COLOCATED, "")
        fluid.taken("a", place, Need(100, 1000, 1))
        fluid.prefilled("a")
        world.now_s += 200 * step_s
        fluid.stepped("w0", StepTotals(200, 200 * step_s, 200, 200 * 2000))
        fluid.ended("a")
        fluid.taken("b", place, SHORT)
        fluid.prefilled("b")
        assert fluid.book("w0").answers == 1
        steps_s.append(fluid.law.step_s(1, 2000, fluid.chunk_tokens("w0")))
    assert steps_s[0] == pytest.approx(0.97 * 0.05, rel=0.01)
    assert 1.1 * steps_s[0] < steps_s[1] < 1.3 * steps_s[0]


def test_an_answer_that_has_just_begun_may_spend_nothing_that_others_have_saved() -> None:
    world = World(knobs=Knobs(foresight=0.0))
    fluid = world.fluid
    place = Placement("w0", Path.COLOCATED, "")
    fluid.taken("a", place, Need(100, 1000, 1))
    fluid.prefilled("a")
    usual = fluid.chunk_tokens("w0")
    world.decode("w0", 900, 9.0)
    assert fluid.chunk_tokens("w0") > 2 * usual
    fluid.taken("b", place, SHORT)
    fluid.prefilled("b")
    assert fluid.law.step_s(2, 2000, fluid.chunk_tokens("w0")) <= 0.05


def test_what_came_in_the_middle_of_a_window_has_its_share_of_the_steps() -> None:
    world = World()
    place = Placement("w0", Path.COLOCATED, "")
    world.fluid.taken("a", place, LONG)
    world.now_s = 6.0
    world.fluid.prefilled("a")
    world.decode("w0", 800, 2.0)
    book = world.fluid.book("w0")
    assert book.steps - book.decoding["a"].begun == pytest.approx(200)


def test_who_cannot_keep_its_mean_any_more_holds_nobody_up() -> None:
    world = World(knobs=Knobs(foresight=0.0))
    fluid = world.fluid
    for name in ("a", "b"):
        fluid.taken(name, Placement("w0", Path.COLOCATED, ""), SHORT)
    fluid.prefilled("a")
    usual = fluid.chunk_tokens("w0")
    world.decode("w0", 1, 3.0)
    assert fluid.chunk_tokens("w0") == usual
    fluid.prefilled("b")
    world.decode("w0", 3, 0.06)
    assert fluid.chunk_tokens("w0") > usual


def test_who_expects_a_short_answer_from_another_worker_keeps_its_steps_short_until_it_is_there() -> None:
    world = World()
    fluid = world.fluid
    fluid.taken("a", Placement("w0", Path.COLOCATED, ""), LONG)
    fluid.prefilled("a")
    alone = fluid.chunk_tokens("w0")
    fluid.taken("b", Placement("w0", Path.REMOTE, "", prefill_id="w1"), SHORT)
    assert fluid.chunk_tokens("w0") < 0.9 * alone
    fluid.ended("b")
    assert fluid.chunk_tokens("w0") == alone


def test_one_answer_of_many_that_may_spend_nothing_does_not_hold_back_what_the_others_have_saved() -> None:
    world = World()
    fluid = world.fluid
    place = Placement("w0", Path.COLOCATED, "")
    for number in range(20):
        fluid.taken(str(number), place, LONG)
        fluid.prefilled(str(number))
    world.decode("w0", 500, 10.0)
    rich = fluid.chunk_tokens("w0")
    fluid.taken("new", place, LONG)
    fluid.prefilled("new")
    assert fluid.chunk_tokens("w0") > 0.9 * rich


def test_a_prompt_that_would_be_late_goes_behind_those_that_may_be_in_time() -> None:
    world = World()
    place = Placement("w0", Path.COLOCATED, "")
    for name, tokens in (("a", 3000), ("b", 20_000), ("c", 3000)):
        world.fluid.taken(name, place, Need(tokens, 10, 1))
    assert [world.fluid.late(name) for name in "abc"] == [False, True, False]


def test_only_so_much_goes_behind() -> None:
    world = World()
    place = Placement("w0", Path.COLOCATED, "")
    for name in "abc":
        world.fluid.taken(name, place, Need(13_000, 10, 1))
    assert [world.fluid.late(name) for name in "abc"] == [True, False, False]
    world.fluid.ended("a")
    world.fluid.taken("d", place, Need(13_000, 10, 1))
    assert world.fluid.late("d")


def test_where_engines_keep_the_order_of_arrival_nobody_is_late() -> None:
    world = World(knobs=Knobs(late_share=inf))
    world.fluid.taken("a", Placement("w0", Path.COLOCATED, ""), Need(20_000, 10, 1))
    assert not world.fluid.late("a")


def test_a_late_prompt_that_has_begun_leaves_half_of_the_steps_to_others() -> None:
    world = World()
    fluid, place = world.fluid, Placement("w0", Path.COLOCATED, "")
    fluid.taken("late", place, Need(20_000, 10, 1))
    fluid.stepped("w0", StepTotals(chunk_steps=1, chunk_s=0.2, chunk_tokens=2048))
    assert fluid.chunk_tokens("w0") == fluid.budget("w0")
    fluid.taken("a", place, SHORT)
    assert fluid.chunk_tokens("w0") == fluid.budget("w0") / 2


def test_a_step_holds_no_more_than_the_largest_with_its_answers_in_it() -> None:
    world = World(tpot_s=10.0, knobs=Knobs(size_slack=0.0))
    fluid, place = world.fluid, Placement("w0", Path.COLOCATED, "")
    for number in range(50):
        fluid.taken(str(number), place, LONG)
        fluid.prefilled(str(number))
    assert fluid.budget("w0") == fluid.knobs.largest_step_tokens == fluid.chunk_tokens("w0") + 50
    fluid.taken("handed", Placement("w0", Path.REMOTE, "", prefill_id="w1"), LONG)
    assert fluid.chunk_tokens("w0") < fluid.budget("w0") - 51


def test_nobody_to_decode_is_said() -> None:
    world = World()
    assert isinstance(world.fluid.place(SHORT, Fleet((), (), {}), RULES), NoRoute)


def test_who_failed_it_is_the_last_choice() -> None:
    world = World()
    placement = world.fluid.place(SHORT, world.fleet, RULES, {"w0", "w1", "w2"})
    assert isinstance(placement, Placement)
    assert placement.worker_id == "w3"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["taken", "prefilled", "moved", "ended"])), max_size=60))
def test_when_all_have_ended_the_books_are_empty(events: list[tuple[int, str]]) -> None:
    world = World()
    ways = (Placement("w0", Path.COLOCATED, ""), Placement("w1", Path.REMOTE, "", prefill_id="w2"))
    for number, what in events:
        if what == "taken":
            world.fluid.taken(str(number), ways[number % 2], SHORT if number % 3 else LONG)
        else:
            getattr(world.fluid, what)(str(number))
    for number in range(6):
        world.fluid.ended(str(number))
    for name in NAMES:
        book = world.fluid.book(name)
        assert (len(book.backlog), book.answers, book.coming) == (0, 0, 0)
        assert abs(book.context_tokens) < 1e-6


def test_an_answer_is_as_long_as_expected_whatever_it_takes_of_kv() -> None:
    world = World()
    need = Need(100, 4000, 1, likely_tokens=1, expected_tokens=500.0)
    world.fluid.taken("a", Placement("w0", Path.COLOCATED, ""), need)
    assert world.fluid.book("w0").context_tokens == 100 + 500 / 2


def test_who_has_the_time_gives_the_first_tokens_too() -> None:
    world = World(knobs=Knobs(leans=False, first_tokens=8, smallest_chunk_tokens=2048))
    world.fluid.leaning = {"w0"}
    for name in NAMES[1:]:
        world.fluid.book(name).backlog.add("load", 100_000)
    placement = world.fluid.place(SHORT, world.fleet, RULES)
    assert isinstance(placement, Placement)
    assert (placement.path, placement.prefill_id, placement.first_tokens) == (Path.REMOTE, "w0", 8)
    world.fluid.book("w0").backlog.add("load", 2048)  # its steps are longer than an answer may see
    busy = world.fluid.place(SHORT, world.fleet, RULES)
    assert isinstance(busy, Placement)
    assert (busy.prefill_id, busy.first_tokens) == ("w0", 1)


def test_a_placement_tells_what_it_was_chosen_from() -> None:
    world = World()
    placement = world.fluid.place(SHORT, world.fleet, RULES)
    assert isinstance(placement, Placement)
    loads = [way.load for way in placement.ways]
    assert len(loads) == len(NAMES)
    assert loads == sorted(loads)
    assert (placement.ways[0].worker_id, placement.ways[0].first_tokens) == (placement.worker_id, 0)


def test_one_that_is_asked_for_again_is_no_new_demand() -> None:
    world, twice = World(), World()
    for each in (world, twice):
        each.send(SHORT)
    twice.fluid.taken("1", Placement("w1", Path.COLOCATED, ""), SHORT, arrives=False)
    assert twice.fluid._demand.load(1.0) == world.fluid._demand.load(1.0)


def test_a_whole_prompt_in_one_step_harms_short_answers_and_hardly_long_ones() -> None:
    """Where chunks cannot be bounded: a long answer's mean has room for a long step, a short one's has not."""
    for output, spare in ((1000, True), (12, False)):
        world = World(knobs=Knobs(leans=False, smallest_chunk_tokens=2048))
        world.fleet = both(("w0", "w1"))
        world.fluid.leaning = {"w1"}
        world.fluid.book("w1").backlog.add("load", 2000)
        for _ in range(3):
            world.fluid.taken(str(output), Placement("w0", Path.COLOCATED, ""), Need(2000, output, 1))
            world.now_s += 1.0
        world.fluid.prefilled(str(output))
        placement = world.fluid.place(Need(2000, output, 1), world.fleet, RULES)
        assert isinstance(placement, Placement)
        assert placement.worker_id == "w0"
        assert (placement.path is Path.COLOCATED) is spare


def test_a_worker_that_is_gone_is_forgotten_when_nothing_is_in_hand_there() -> None:
    world = World()
    sent = world.send(LONG)
    world.fluid.forget(NAMES)
    assert world.fluid.books == {sent.worker_id}
    world.fluid.ended("1")
    world.fluid.forget(NAMES)
    assert not world.fluid.books
