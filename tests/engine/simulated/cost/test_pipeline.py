"""Pipelines kept full (R-33)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import load_profile
from engine.simulated.cost.linear import LinearCost
from engine.simulated.cost.pipeline import PipelinedCost, pipelined

PASS = LinearCost(base_s=8e-3, token_s=20e-6, context_token_s=20e-9, token_pair_s=1e-9)


def test_one_stage_changes_nothing() -> None:
    chunks = [(512, 0), (64, 128)]
    assert PipelinedCost(PASS, 1).step_s(7, 900, chunks) == PASS.step_s(7, 900, chunks)
    flat = load_profile("h200-sxm/llama-3.1-8b?tp=1")
    assert pipelined(flat) is flat


def test_a_round_of_equal_batches_takes_one_pass_of_one_of_them() -> None:
    """By hand: 8 sequences on 4 stages are 4 batches of 2, each stage always busy."""
    assert PipelinedCost(PASS, 4).step_s(8, 8000) == PASS.step_s(2, 2000)
    assert PipelinedCost(PASS, 4).step_s(9, 9000) == PASS.step_s(3, 3000), "the odd one makes one batch larger"


def test_a_lone_sequence_pays_for_all_stages() -> None:
    assert PipelinedCost(PASS, 8).step_s(1, 500) == PASS.step_s(1, 500)


def test_prompts_are_shared_out() -> None:
    assert PipelinedCost(PASS, 2).step_s(0, 0, [(300, 0), (200, 0), (100, 0)]) == PASS.step_s(0, 0, [(300, 0)])


def test_rates_come_near_one_stage_of_work_a_batch() -> None:
    """Throughput gains from stages in flight, latency does not."""
    profile = load_profile("h200-sxm/qwen3-32b?tp=1&pp=4")
    full = pipelined(profile)
    assert full.max_num_batched_tokens == 4 * profile.max_num_batched_tokens
    prompts = [(2048, 0)] * 16
    assert full.cost.step_s(0, 0, prompts) == pytest.approx(profile.cost.step_s(0, 0, prompts) / 4, rel=0.1)
    assert full.cost.step_s(1, 2048) == profile.cost.step_s(1, 2048)


@given(st.integers(1, 9), st.integers(1, 300), st.integers(0, 4000), st.integers(1, 400))
def test_runs_equal_their_steps(stages: int, batch: int, context: int, steps: int) -> None:
    cost = PipelinedCost(load_profile("h200-sxm/llama-3.1-8b?tp=1").cost, stages)
    total = batch * context
    expected = sum(cost.step_s(batch, total + k * batch) for k in range(steps))
    assert cost.decode_run_s(batch, total, steps) == pytest.approx(expected, rel=1e-9)
    within = cost.decode_steps_within(batch, total, expected * (1 + 1e-9))
    assert within >= steps
