"""Closed batches on layouts, by hand and by invariants (R-49, R-53)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import DoesNotFitError, load_profile
from engine.simulated.cost.linear import LinearCost
from engine.simulated.time_account import TimeAccount
from loadgen.demand import Demand
from loadgen.reproduce.batch import run_batch, run_on
from loadgen.reproduce.case import Case, run_case
from loadgen.reproduce.layout import Layout, engine_of, parse_layout
from loadgen.reproduce.lengths import LONGEST, Lognormal, Reasoning
from loadgen.reproduce.pool import run_cases
from loadgen.reproduce.replica import ReplicaRun
from loadgen.reproduce.stranded import stranded_token_s
from tests.examples import examples

M8 = "deepseek-r1-distill-llama-8b"
#: 10 ms a step, whatever is in it.
CLOCK = replace(load_profile("toy"), cost=LinearCost(base_s=0.01), blocks_total=1000)


@pytest.mark.parametrize(
    ("text", "layout"), [("DP4×TP2", Layout(4, 2)), ("tp8", Layout(tp=8)), ("PP=4xTP=2", Layout(1, 2, 4))]
)
def test_layouts_are_read(text: str, layout: Layout) -> None:
    assert parse_layout(text) == layout
    assert parse_layout(str(layout)) == layout
    assert layout.gpus == 8


@pytest.mark.parametrize("text", ["", "EP8", "TP2×TP4", "8"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not like"):
        parse_layout(text)


def test_a_batch_by_hand() -> None:
    """Four answers of 5 tokens, two a replica: the prompts' step, then four more."""
    run = run_on(CLOCK, Layout(dp=2), [Demand(8, 5)] * 4, max_num_seqs=8)
    assert run.makespan_s == pytest.approx(0.05)
    assert run.ttft_s.mean == pytest.approx(0.01)
    assert run.tpot_s.mean == pytest.approx(0.01)
    assert (run.output_tokens, run.preemptions, run.recomputed_tokens, run.stranded_share) == (20, 0, 0, 0.0)
    assert run.prefill_share == pytest.approx(0.2)
    assert [replica.requests for replica in run.replicas] == [2, 2]


def test_the_limit_of_sequences_makes_waves() -> None:
    run = run_on(CLOCK, Layout(), [Demand(8, 5)] * 4, max_num_seqs=2)
    assert run.makespan_s == pytest.approx(0.1)
    assert run.ttft_s.p99 > 0.05
    assert run.replicas[0].peak_running == 2


def test_too_many_sequences_for_the_kv_lose_work() -> None:
    """16 blocks of 16 hold two sequences of 128 tokens: four at once preempt one another, two at once do not."""
    small = replace(CLOCK, blocks_total=16)
    many = run_on(small, Layout(), [Demand(16, 112)] * 4, max_num_seqs=4)
    few = run_on(small, Layout(), [Demand(16, 112)] * 4, max_num_seqs=2)
    assert many.preemptions > 0
    assert many.recomputed_share > 0
    assert (few.preemptions, few.recomputed_tokens) == (0, 0)


@examples(30)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(8, 60),
)
def test_everybody_is_served_and_time_adds_up(
    lengths: list[tuple[int, int]], replicas: int, cap: int, blocks: int
) -> None:
    profile = replace(CLOCK, blocks_total=blocks, cost=LinearCost(2e-3, 20e-6, 20e-9, 1e-9))
    run = run_on(profile, Layout(dp=replicas), [Demand(p, o) for p, o in lengths], max_num_seqs=cap)
    assert run.failed == 0
    assert run.output_tokens == sum(o for _, o in lengths)
    assert run.prefill_share + run.decode_share == pytest.approx(1)
    assert run.makespan_s == max(replica.makespan_s for replica in run.replicas)
    assert 0 <= run.stranded_share <= 1
    assert run.replicas[0].peak_running <= cap


def test_stranded_kv_is_what_others_cannot_use() -> None:
    """The second replica has 60 of 100 tokens free and is done after 2 s; the first is short from 1 s to 3 s of 4 s."""
    full = replica(end_s=4.0, times=[0.0, 1.0, 3.0, 4.0], free=[0, 0, 0, 100], short=[0, 1, 0, 0])
    idle = replica(end_s=2.0, times=[0.0, 2.0], free=[60, 60], short=[0, 0])
    assert stranded_token_s([full, idle]) == pytest.approx((0.0, 1 * 60 + 1 * 100), rel=1e-2)
    assert stranded_token_s([full]) == (0.0,)


def replica(*, end_s: float, times: list[float], free: list[float], short: list[float]) -> ReplicaRun:
    none = np.empty(0)
    return ReplicaRun(
        1, 0, 100, end_s, 1, none, none, 0, 0, 1, TimeAccount(), np.array(times), np.array(free), np.array(short)
    )  # fmt: skip


def test_what_does_not_fit_says_so() -> None:
    with pytest.raises(DoesNotFitError):
        run_batch("deepseek-r1-distill-llama-70b", Layout(dp=8), [Demand(8, 8)])
    assert run_case(Case("deepseek-r1-distill-llama-70b", Layout(dp=8), 4), seed=1) is None


def test_a_pipeline_costs_latency_and_adds_room() -> None:
    flat, staged = engine_of(M8, Layout(tp=4)), engine_of(M8, Layout(tp=4, pp=2))
    assert staged.cost.step_s(1, 100) > flat.cost.step_s(1, 100)
    assert staged.cost.step_s(256, 256 * 1000) < flat.cost.step_s(256, 256 * 1000)
    assert staged.kv_tokens_total > 2 * flat.kv_tokens_total


@pytest.mark.slow
def test_more_processes_give_the_same_answers() -> None:
    cases = [Case(M8, Layout(dp=dp), 12, lengths=Reasoning(0.02)) for dp in (1, 2)]
    seen: list[tuple[int, int]] = []
    alone = run_cases([*cases, cases[0]], 3, watch=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)], "equal cases run once"
    assert run_cases(cases, 3, jobs=2) == alone


@pytest.mark.parametrize(("mean", "cv"), [(250, 0.0), (2500, 0.7), (6000, 0.35)])
def test_lognormal_outputs_have_their_mean_and_spread(mean: float, cv: float) -> None:
    drawn = Lognormal(mean, cv).workload().draw(20_000, np.random.default_rng(1))
    outputs = np.array([chain[0].output_tokens for chain in drawn])
    assert outputs.mean() == pytest.approx(mean, rel=0.03)
    assert outputs.std() / outputs.mean() == pytest.approx(cv, abs=0.06)


def test_reasoning_lengths_scale_and_stay_capped() -> None:
    assert Reasoning(0.5).workload().output_tokens.mean == pytest.approx(
        Reasoning().workload().output_tokens.mean / 2, rel=0.01
    )
    assert Reasoning(3.0).workload().output_tokens.at(100) == LONGEST
