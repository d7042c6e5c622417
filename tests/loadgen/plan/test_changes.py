"""Hardware other than the table's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import load_profile
from loadgen.failure import LoadgenError
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.changes import Changes, FasterCost
from loadgen.plan.what_if import what_if
from proto.worker import Role
from tests.loadgen.plan.asking import PROFILE, question

COST = load_profile("h200-sxm/llama-3.1-8b?tp=2").cost
SPED = FasterCost(COST, 1.2, 1.5, 1.1)
LAYOUT = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE)), Part(Role.DECODE, 2, Engine(PROFILE))))


@given(st.integers(1, 200), st.integers(1, 4000), st.integers(1, 60))
def test_a_run_of_steps_is_the_sum_of_its_steps(batch: int, context: int, steps: int) -> None:
    tokens = batch * context
    singly = sum(SPED.step_s(batch, tokens + k * batch) for k in range(steps))
    assert SPED.decode_run_s(batch, tokens, steps) == pytest.approx(singly, rel=1e-6)
    assert SPED.decode_steps_within(batch, tokens, singly * (1 + 1e-6)) >= steps


@given(st.integers(0, 200), st.integers(1, 4000), st.integers(0, 4000))
def test_faster_hardware_is_never_slower_and_not_by_more_than_its_factors(
    batch: int, context: int, prompt: int
) -> None:
    step = (batch, batch * context, [(prompt, 0)] if prompt else [])
    was, now = COST.step_s(*step), SPED.step_s(*step)
    assert was / 1.5 - 1e-12 <= now <= was + 1e-12


def test_fp8_doubles_the_tokens_and_halves_what_moves() -> None:
    old = load_profile(PROFILE)
    new = Changes(kv_fp8=True).apply(old)
    assert new.kv_tokens_total == 2 * old.kv_tokens_total
    assert new.kv_bytes_per_token * 2 == old.kv_bytes_per_token


def test_links_by_where_they_are() -> None:
    old = load_profile(PROFILE)
    new = Changes(scale_up=2, kv_link=1.5).apply(old)
    assert new.links["nvlink"].bytes_per_s == pytest.approx(3 * old.links["nvlink"].bytes_per_s)
    assert new.links["rdma"].bytes_per_s == pytest.approx(1.5 * old.links["rdma"].bytes_per_s)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("gpu=b200", "no table 'b200/llama-3.1-8b'"),
        ("lost-node", "nothing would be left"),
        ("output=twice", "needs a factor"),
        ("weights=int4", "is not known"),
    ],
)
def test_what_the_tables_do_not_support_is_refused(words: str, cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        what_if(words, question(), [LAYOUT], gpus_per_node=8)


def test_twice_the_output() -> None:
    case = what_if("output=2x", question(), [LAYOUT], 8)
    assert {d.output_tokens for d in case.question.sample} == {40}


def test_a_lost_worker_leaves_a_pool_smaller_or_the_layout_dead() -> None:
    both = Candidate((Part(Role.BOTH, 2, Engine(PROFILE)),))
    case = what_if("lost-worker", question(), [LAYOUT, both], 8)
    (_, dead), (_, fewer) = case.layouts
    assert dead is None  # its only prefill worker
    assert fewer is not None
    assert fewer.gpus == 1


def test_a_lost_node_takes_the_workers_on_it() -> None:
    case = what_if("lost-node", question(), [LAYOUT], gpus_per_node=2)
    assert case.layouts[0][1] is None  # the prefill worker sat there
    wide = Candidate((Part(Role.BOTH, 5, Engine(PROFILE)),))
    left = what_if("lost-node", question(), [wide], gpus_per_node=2).layouts[0][1]
    assert left is not None
    assert left.gpus == 3
