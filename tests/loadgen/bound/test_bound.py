"""The optimistic limit: nothing simulated beats it, and easy cases come near it (R-32)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import Profile, load_profile
from engine.simulated.cost.pipeline import pipelined
from engine.simulated.job import Job, Kind
from engine.simulated.virtual import VirtualEngine
from loadgen.arrivals.process import Arrivals
from loadgen.arrivals.process import Kind as Process
from loadgen.bound import Bound, Limits, Pool, Remembered, Resource, Role, bound_of, work_of
from loadgen.demand import Demand
from loadgen.reproduce.layout import vllm_limits
from loadgen.reproduce.replica import run_replica
from loadgen.schedule import Planned, Schedule
from loadgen.simulate import Layout, simulate
from loadgen.simulate import Pool as LayoutPool
from proto.worker import Role as WorkerRole
from tests.examples import examples, first

EIGHT_B = load_profile("h200-sxm/llama-3.1-8b?tp=1")
PROFILES = {
    "8b": EIGHT_B,
    "8b, little KV": replace(EIGHT_B, blocks_total=1500),
    "32b tp8": load_profile("h200-sxm/deepseek-r1-distill-qwen-32b?tp=8"),
    "70b pp2": pipelined(load_profile("h200-sxm/llama-3.1-70b?tp=2&pp=2")),
    "r1": load_profile("h200-sxm/deepseek-r1?tp=8&ep=1"),
    "toy": load_profile("toy"),
}


def fixed(prompt: int, output: int, count: int = 300) -> list[Demand]:
    return [Demand(prompt, output)] * count


def closed(profile: Profile, demands: Sequence[Demand]) -> float:
    run = run_replica(profile, demands, profile.max_num_seqs)
    assert not run.failed
    return len(demands) / run.makespan_s


@pytest.mark.parametrize("name", first(2, PROFILES))
@pytest.mark.parametrize(("prompt", "output"), [(100, 1000), (1000, 1), (6000, 20), (1500, 200)])
def test_easy_cases_come_near_and_stay_below(name: str, prompt: int, output: int) -> None:
    """Equal lengths and enough of them: what is missing is waves, rounding to cells, and steps that cannot be mixed freely."""
    demands = fixed(prompt, output)
    share = closed(PROFILES[name], demands) / bound_of([Pool(PROFILES[name], 1)], demands).rate_per_s
    assert 0.5 < share <= 1.0


BATCHES = (
    st.sampled_from(sorted(PROFILES)),
    st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 1500)), min_size=1, max_size=80),
)


@examples(4)
@given(*BATCHES)
def test_no_closed_batch_beats_it(name: str, lengths: list[tuple[int, int]]) -> None:
    demands = [Demand(p, o) for p, o in lengths]
    assert closed(PROFILES[name], demands) <= bound_of([Pool(PROFILES[name], 1)], demands).rate_per_s


@pytest.mark.slow
@examples(80)
@given(*BATCHES)
def test_no_closed_batch_of_many_beats_it(name: str, lengths: list[tuple[int, int]]) -> None:
    test_no_closed_batch_beats_it.hypothesis.inner_test(name, lengths)  # type: ignore[attr-defined]  # hypothesis adds it


OPEN = (st.integers(0, 1000), st.floats(0.3, 3.0), st.floats(0.006, 0.03), st.floats(0.05, 2.0))


@examples(2)
@given(*OPEN)
def test_no_open_run_beats_it_at_the_attainment_it_had(seed: int, load: float, tpot_s: float, ttft_s: float) -> None:
    rng = np.random.default_rng(seed)
    demands = [
        Demand(int(p), int(o)) for p, o in zip(rng.integers(20, 4000, 120), rng.integers(2, 600, 120), strict=True)
    ]
    limits = Limits(ttft_s, tpot_s)
    pool = [Pool(EIGHT_B, 1)]
    arrivals = np.cumsum(rng.exponential(1 / (load * bound_of(pool, demands).rate_per_s), len(demands)))
    good, end_s = open_loop(EIGHT_B, demands, arrivals.tolist(), limits)
    if good:
        attained = bound_of(pool, demands, limits, attainment=good / len(demands))
        assert len(demands) / end_s <= attained.rate_per_s


@pytest.mark.slow
@examples(40)
@given(*OPEN)
def test_no_open_run_of_many_beats_it(seed: int, load: float, tpot_s: float, ttft_s: float) -> None:
    test_no_open_run_beats_it_at_the_attainment_it_had.hypothesis.inner_test(  # type: ignore[attr-defined]  # hypothesis adds it
        seed, load, tpot_s, ttft_s
    )


def open_loop(profile: Profile, demands: Sequence[Demand], arrivals: list[float], limits: Limits) -> tuple[int, float]:
    """How many were good, and when the last ended."""
    engine = VirtualEngine(vllm_limits(profile, profile.max_num_seqs), profile.cost)
    first: dict[int, float] = {}
    good, number = 0, 0
    while number < len(demands) or engine.due_s is not None:
        if number < len(demands) and (engine.due_s is None or arrivals[number] <= engine.due_s):
            demand = demands[number]
            engine.submit(Job(str(number), demand.prompt_tokens, demand.output_tokens), arrivals[number])
            number += 1
            continue
        for event in engine.advance():
            which = int(event.request_id)
            if event.kind is Kind.FIRST_TOKEN:
                first[which] = event.time_s
            elif event.kind is Kind.FINISHED:
                tokens = demands[which].output_tokens
                assert limits.ttft_s is not None
                assert limits.tpot_s is not None
                in_time = first[which] - arrivals[which] <= limits.ttft_s
                good += in_time and event.time_s - first[which] <= limits.tpot_s * (tokens - 1)
    return good, engine.now_s


def test_it_grows_with_engines_and_shrinks_with_roles() -> None:
    demands = fixed(1500, 200)
    one = bound_of([Pool(EIGHT_B, 1)], demands).rate_per_s
    assert bound_of([Pool(EIGHT_B, 3)], demands).rate_per_s == pytest.approx(3 * one)
    split = split_bound(demands, prefill=1, decode=2)
    assert split.rate_per_s < 3 * one
    assert split_bound(demands, prefill=2, decode=2).rate_per_s >= split.rate_per_s


def split_bound(demands: Sequence[Demand], *, prefill: int, decode: int, link: str = "") -> Bound:
    return bound_of(
        [
            Pool(EIGHT_B, prefill, Role.PREFILL, link),
            Pool(EIGHT_B, decode, Role.DECODE, link, local_prefill=False),
        ],
        demands,
    )  # fmt: skip


def test_a_slow_link_binds() -> None:
    demands = fixed(6000, 50)
    free = split_bound(demands, prefill=4, decode=2)
    assert free.resource is not Resource.LINK
    assert free.pool == 0, "long prompts, short answers: the prefill pool is the bottleneck"
    wire = replace(EIGHT_B, links={"tcp": replace(EIGHT_B.links["tcp"], bytes_per_s=1e9)})
    slow = bound_of(
        [Pool(wire, 4, Role.PREFILL, "tcp"), Pool(wire, 2, Role.DECODE, "tcp", local_prefill=False)], demands
    )
    assert slow.resource is Resource.LINK
    assert slow.rate_per_s == pytest.approx(2 * 1e9 / (6000 * EIGHT_B.kv_bytes_per_token), rel=1e-6)


@pytest.mark.parametrize(
    ("demands", "limits", "resource"),
    [
        (fixed(4000, 1), Limits(), Resource.COMPUTE),
        (fixed(100, 8000), Limits(), Resource.KV),
        (fixed(20, 200), Limits(), Resource.SLOTS),
        (fixed(100, 8000), Limits(tpot_s=0.012), Resource.TPOT),
    ],
)
def test_what_binds(demands: list[Demand], limits: Limits, resource: Resource) -> None:
    profile = replace(EIGHT_B, max_num_seqs=128 if resource is Resource.SLOTS else 1024)
    assert bound_of([Pool(profile, 1)], demands, limits).resource is resource


def test_limits_out_of_reach_leave_nothing() -> None:
    demands = [*fixed(8000, 100, 2), *fixed(100, 100, 8)]
    assert bound_of([Pool(EIGHT_B, 1)], demands, Limits(ttft_s=0.1)) == Bound(0.0, Resource.TTFT, 0)
    assert bound_of([Pool(EIGHT_B, 1)], demands, Limits(ttft_s=0.1), attainment=0.8).rate_per_s > 0
    assert bound_of([Pool(EIGHT_B, 1)], demands, Limits(tpot_s=1e-3)) == Bound(0.0, Resource.TPOT, 0)


def test_a_tighter_limit_never_helps() -> None:
    demands = fixed(500, 400)
    rates = [bound_of([Pool(EIGHT_B, 1)], demands, Limits(tpot_s=s)).rate_per_s for s in (0.05, 0.02, 0.01, 0.006)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0]


def test_work_by_hand() -> None:
    """Two tokens after the first read 11 and 12; the dearer half may be refused."""
    work = work_of([Demand(10, 3), Demand(100, 30)])
    assert work.decode_tokens == (2 + 29) / 2
    assert work.context_tokens == (11 + 12 + sum(range(101, 130))) / 2
    half = work_of([Demand(10, 3), Demand(100, 30)], attainment=0.5)
    assert (half.decode_tokens, half.prompt_tokens) == (1.0, 5.0)
    twins = [Demand(100, 1, prefix=(7, 8), block_tokens=40), Demand(100, 1, prefix=(7, 8), block_tokens=40)]
    assert work_of(twins).prompt_tokens == (100 + 20) / 2


def test_nobody_to_decode_is_refused() -> None:
    with pytest.raises(ValueError, match="somebody who decodes"):
        bound_of([Pool(EIGHT_B, 1, Role.PREFILL)], fixed(10, 10))
    with pytest.raises(ValueError, match="sample"):
        bound_of([Pool(EIGHT_B, 1)], [])


def test_sequences_that_share_a_prefix_share_its_kv() -> None:
    """24,000 tokens of KV hold 23 whole contexts, but far more answers behind one shared prompt."""
    profile = replace(EIGHT_B, blocks_total=1500)
    demands = [Demand(1010, 200, prefix=(7,), block_tokens=1000)] * 150
    layout = Layout((LayoutPool.of(WorkerRole.BOTH, 1, profile),), admission=False)
    planned = tuple(Planned(number, 0.0, demand) for number, demand in enumerate(demands))
    outcome = simulate(layout, Schedule(planned, 0.0, Arrivals(Process.CLOSED, concurrency=100), 0))
    assert all(result.completed for result in outcome.results)
    assert len(demands) / outcome.duration_s <= bound_of([Pool(profile, 1)], demands).rate_per_s


@pytest.mark.slow
def test_remembered_steps_give_the_same_bound() -> None:
    """Other shares of the same lengths share their steps; other lengths do not."""
    kept = Remembered()
    sample = [Demand(p, o) for p, o in ((100, 50), (3000, 400), (500, 20))]
    for demands in (sample, [*sample, *fixed(100, 50, 5)], fixed(64, 900, 3)):
        for engines in (1, 3):
            pools = [Pool(EIGHT_B, engines)]
            assert bound_of(pools, demands, columns=kept) == bound_of(pools, demands)
