"""The choice among all workers is made in one pass, for speed. Here it is made way by way, as the rule says it: the same comes out."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.need import Need
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.roles.demand import haste_of
from gateway.policy.routing import (
    DecodeCandidate,
    Fleet,
    Link,
    Outlook,
    Path,
    Placement,
    PrefillCandidate,
    Rules,
    Way,
    able_to_decode,
    choose_path,
)
from proto.worker import Role, StepTotals
from tests.examples import examples

NAMES = tuple(f"w{at}" for at in range(6))
RULES = Rules(local_below_tokens=0, prefill_here_if_none=True)
AIMS = Aims(1.0, 0.05)

needs = st.builds(
    Need,
    st.integers(1, 20_000),
    st.integers(1, 4000),
    st.integers(1, 3),
    st.sampled_from([0, 0, 1, 500]),
    st.sampled_from([0.0, 1.5, 700.0]),
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    roles = draw(st.lists(st.sampled_from(Role), min_size=len(NAMES), max_size=len(NAMES)))
    decodes, prefills = [], []
    for name, role in zip(NAMES, roles, strict=True):
        if role.decodes:
            free, total = draw(st.integers(0, 3000)), draw(st.sampled_from([1500, 3000]))
            headroom = draw(st.none() | st.floats(-10, 3000))
            decode = DecodeCandidate(
                name,
                role,
                draw(st.sampled_from([4096, 32_768])),
                16,
                total,
                min(free, total),
                draw(st.sampled_from([4, 40])),
            )
            cached, closed = draw(st.sampled_from([0, 0, 48, 19_000])), draw(st.sampled_from([False, False, True]))
            decodes.append(_with(decode, cached_tokens=cached, closed=closed, headroom_blocks=headroom))
        if role.prefills:
            prefills.append(PrefillCandidate(name, role, 0))
    links = {
        name: {other: Link("nvlink") for other in NAMES if other != name and draw(st.integers(0, 4))} for name in NAMES
    }
    return Fleet(tuple(decodes), tuple(prefills), links)


def _with(decode: DecodeCandidate, **more: object) -> DecodeCandidate:
    kept = {name: getattr(decode, name) for name in DecodeCandidate.__slots__}
    return DecodeCandidate(**{**kept, **more})


@st.composite
def policies(draw: st.DrawFn) -> Fluid:
    """With prompts and answers in hand, and steps that were seen."""
    bounded, first_tokens = draw(st.booleans()), draw(st.sampled_from([1, 8]))
    knobs = Knobs(leans=False, smallest_chunk_tokens=64 if bounded else 2048, first_tokens=first_tokens)
    fluid = Fluid(AIMS, lambda: 1.0, knobs)
    fluid.leaning = set(draw(st.lists(st.sampled_from(NAMES), max_size=3)))
    workers = st.sampled_from(NAMES)
    for key in range(draw(st.integers(0, 12))):
        decode, prefill, progress = draw(workers), draw(workers), draw(st.integers(0, 2))
        path = Path.COLOCATED if prefill == decode else Path.REMOTE
        fluid.taken(str(key), Placement(decode, path, "", prefill_id=prefill), draw(needs))
        for done in (fluid.prefilled, fluid.moved)[:progress]:
            done(str(key))
    for name in draw(st.lists(workers, max_size=4)):
        tokens = draw(st.integers(300, 2048))
        fluid.stepped(name, StepTotals(5, 0.1, 20, 9000, 3, 0.3, 3 * tokens, 6, 3000))
    return fluid


def plainly(fluid: Fluid, need: Need, fleet: Fleet, avoid: set[str]) -> Outlook:
    fitting = able_to_decode(need, fleet, RULES)
    if not isinstance(fitting, list):
        return fitting
    fitting = [one for one in fitting if one.worker_id not in avoid] or fitting
    knobs, law = fluid.knobs, fluid.law
    output = max(1.0, need.expected_tokens or need.growth_tokens)
    context = need.prompt_tokens + output / 2
    haste = fluid._demand.load(1.0).haste

    def held(one: DecodeCandidate) -> float:
        book = fluid.book(one.worker_id)
        of_kv = (book.context_tokens + context) / (knobs.kv_share * (one.blocks_total * 16))
        return max(of_kv, (book.promised + need.answers) / one.slots_total)

    def step_s(one: DecodeCandidate, tokens: int) -> float:
        book = fluid.book(one.worker_id)
        tokens = book.backlog.tokens + tokens if book.answers else 0
        answers, context_tokens = book.promised + 1, book.context_tokens + context
        spread_s = law.step_s(answers, context_tokens) + tokens * law.token_s * haste
        if not knobs.bounds_chunks:
            return spread_s
        chunk = min(tokens, book.most_chunk_tokens(law, AIMS, knobs))
        return min(spread_s, law.step_s(answers, context_tokens, chunk))

    def first_s(name: str, tokens: int) -> float:
        return fluid.book(name).first_token_s(tokens, law, AIMS, knobs)

    def load(step: float, share: float, first: float = 0.0) -> float:
        parts = (step / (knobs.tpot_share * AIMS.tpot_s), share, first / (knobs.ttft_share * AIMS.ttft_s))
        return float(parts[0] ** 4 + parts[1] ** 4 + parts[2] ** 4)

    roomy = [one for one in fitting if one.worker_id not in fluid.leaning and held(one) <= 1] or fitting
    ways = []
    for one in roomy:
        name, tokens = one.worker_id, max(1, need.prompt_tokens - one.cached_tokens)
        step, first = step_s(one, tokens), first_s(name, tokens)
        ways.append(Way(name, name, 0, load(step, held(one), first), first, step, held(one)))
    best = min(roomy, key=lambda one: (load(step_s(one, 0), held(one)), one.worker_id))
    for other in fleet.partners(best.worker_id):
        if other.role is Role.PREFILL or other.worker_id in fluid.leaning:
            step, first = step_s(best, 0), first_s(other.worker_id, need.prompt_tokens)
            total = load(step, held(best), first) + (knobs.handoff_steps * haste_of(output)) ** 4
            tokens = fluid._first_tokens(other.worker_id, need)
            ways.append(Way(best.worker_id, other.worker_id, tokens, total, first, step, held(best)))
    ways.sort(key=lambda way: (way.load, way.computed_by))
    return _placed(ways[0], {one.worker_id: one.role for one in fitting}, tuple(ways[:6]))


def _placed(way: Way, roles: Mapping[str, Role], told: tuple[Way, ...]) -> Placement:
    if way.first_tokens:
        return Placement(
            way.worker_id, Path.REMOTE, "fluid", prefill_id=way.computed_by, first_tokens=way.first_tokens, ways=told
        )
    path = Path.COLOCATED if roles[way.worker_id] is Role.BOTH else Path.LOCAL
    return Placement(way.worker_id, path, "fluid", ways=told)


@examples(60)
@given(policies(), needs, fleets(), st.sets(st.sampled_from(NAMES), max_size=3))
def test_one_pass_over_all_workers_chooses_what_the_rule_says(
    fluid: Fluid, need: Need, fleet: Fleet, avoid: set[str]
) -> None:
    wanted = plainly(fluid, need, fleet, avoid)
    placed = fluid.place(need, fleet, RULES, avoid)
    assert placed == wanted
    if isinstance(placed, Placement) and isinstance(wanted, Placement):
        assert placed.ways == wanted.ways


@given(needs, fleets(), st.sets(st.sampled_from(NAMES), max_size=3), st.booleans())
def test_whoever_has_plenty_of_room_is_taken_without_a_closer_look_and_nobody_else_is(
    need: Need, fleet: Fleet, never: set[str], anywhere: bool
) -> None:
    rules = Rules(local_below_tokens=16, prefill_here_if_none=anywhere)
    able = [
        one
        for one in fleet.decodes
        if not one.closed and one.worker_id not in never and one.fits(need) and one.could_ever(need)
        if choose_path(need, one, fleet, rules) is not None
    ]
    found = able_to_decode(need, fleet, rules, never)
    assert found == able if able else not isinstance(found, list)
