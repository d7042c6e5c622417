"""Profiles by name: capacity, layouts, and refusals that say what there is."""

import subprocess
import sys

import pytest

from engine.simulated.cost import UnknownProfileError, list_profiles, load_profile
from engine.simulated.cost.catalog import load_budget
from engine.simulated.cost.memory import DoesNotFitError
from engine.simulated.cost.models import SHAPES
from tests.waiting import HANG_S


@pytest.mark.parametrize("name", list_profiles())
def test_every_listed_profile_loads(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.blocks_total > 0
    assert profile.max_model_len <= profile.kv_tokens_total
    assert profile.links


def test_the_models_asked_for_are_there() -> None:
    wanted = {
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "qwen3-8b",
        "qwen3-32b",
        "deepseek-r1-distill-qwen-14b",
        "deepseek-r1-distill-qwen-32b",
        "deepseek-r1-distill-llama-8b",
        "deepseek-r1-distill-llama-70b",
        "deepseek-r1",
    }
    assert {name.removeprefix("h200-sxm/") for name in list_profiles()} == wanted | {"toy", "instant"}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("qwen3-32b", 262_144),
        ("deepseek-r1-distill-qwen-32b", 262_144),
        ("llama-3.1-70b", 327_680),
        ("deepseek-r1", 70_272),
    ],
)
def test_kv_bytes_follow_from_the_shape_and_halve_with_fp8(model: str, expected: int) -> None:
    shape = SHAPES[model]
    assert shape.kv_bytes_per_token() == expected
    assert shape.kv_bytes_per_token("fp8") == expected // 2


def test_latent_kv_is_held_by_every_rank_and_heads_are_shared_out() -> None:
    assert SHAPES["deepseek-r1"].kv_bytes_per_rank(8) == 70_272
    assert SHAPES["llama-3.1-70b"].kv_bytes_per_rank(8) == 327_680 // 8
    # Beyond one head a rank, heads are repeated.
    assert SHAPES["llama-3.1-70b"].kv_bytes_per_rank(16) == 327_680 // 8
    assert SHAPES["llama-3.1-70b"].kv_bytes_per_rank(2, pp=2) == 327_680 // 4


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("llama-3.1-8b?tp=1", 882_732),
        ("llama-3.1-8b?tp=4", 3_898_259),
        ("qwen3-8b?tp=2", 1_675_272),
        ("qwen3-32b?tp=4", 1_755_323),
        ("llama-3.1-70b?tp=8", 2_777_820),
        ("llama-3.1-405b?tp=8", 453_934),
        ("deepseek-r1?tp=8&ep=8", 563_505),
    ],
)
def test_capacity_is_what_the_source_leaves_for_kv(name: str, tokens: int) -> None:
    assert load_budget(f"h200-sxm/{name}").kv_tokens == tokens
    assert load_profile(f"h200-sxm/{name}").blocks_total == tokens // 16


def test_the_budget_adds_up() -> None:
    budget = load_budget("h200-sxm/qwen3-32b?tp=2&util=0.8")
    parts = budget.weights_bytes + budget.activation_bytes + budget.comm_bytes + budget.runtime_bytes + budget.kv_bytes
    assert parts == budget.limit_bytes == int(0.8 * budget.gpu_bytes)
    assert 0 < budget.half_filled_bytes < budget.kv_bytes


def test_more_memory_and_utilisation_give_more_room() -> None:
    base = load_profile("h200-sxm/qwen3-32b").blocks_total
    assert load_profile("h200-sxm/qwen3-32b?util=0.95").blocks_total > base
    assert load_profile("h200-sxm/qwen3-32b?gib=192").blocks_total > base
    assert load_profile("h200-sxm/qwen3-32b", gpu_memory_utilization=0.8).blocks_total < base


def test_what_the_name_says_goes_before_arguments() -> None:
    assert load_profile("h200-sxm/llama-3.1-8b?tp=2", tp=1).tp == 2
    assert load_profile("h200-sxm/llama-3.1-8b", tp=4).tp == 4


def test_unsaid_the_smallest_layout_that_fits_is_taken() -> None:
    assert load_profile("h200-sxm/llama-3.1-70b").tp == 2
    assert (load_profile("h200-sxm/deepseek-r1").tp, load_profile("h200-sxm/deepseek-r1").ep) == (8, 8)


def test_pipeline_stages_share_weights_and_add_hops() -> None:
    with pytest.raises(DoesNotFitError, match="no room for KV"):
        load_profile("h200-sxm/llama-3.1-70b?tp=1")
    staged, flat = load_profile("h200-sxm/llama-3.1-70b?tp=2&pp=2"), load_profile("h200-sxm/llama-3.1-70b?tp=2")
    assert staged.blocks_total > 2 * flat.blocks_total
    hop = staged.cost.step_s(0, 0, [(4096, 0)]) - flat.cost.step_s(0, 0, [(4096, 0)])
    assert hop == pytest.approx(10e-6 + 4096 * 8192 * 2 / 50e9)
    assert staged.cost.breakdown(0, 0, [(4096, 0)]).collective_s > hop


def test_a_transfer_uses_the_links_of_all_ranks() -> None:
    one, four = load_profile("h200-sxm/qwen3-32b?tp=1"), load_profile("h200-sxm/qwen3-32b?tp=4")
    assert four.links["rdma"].bytes_per_s == 4 * one.links["rdma"].bytes_per_s
    # Latent KV is pulled whole by every rank.
    assert load_profile("h200-sxm/deepseek-r1").links["rdma"].bytes_per_s == 50e9
    assert one.links["rdma"].transfer_s(8192 * one.kv_bytes_per_token) == pytest.approx(0.043, rel=0.01)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h200-sxm/gpt-2", "known: deepseek|known: h200"),
        ("h200-sxm/llama-3.1-8b?tp=3", "known: tp=1"),
        ("h200-sxm/llama-3.1-8b?speed=3", "no option 'speed'"),
        ("h200-sxm/llama-3.1-8b?tp=two", "not a number"),
        ("h200-sxm/llama-3.1-8b?tp=0", "must be positive"),
    ],
)
def test_a_wrong_name_says_what_is_right(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_profile(name)
    with pytest.raises(UnknownProfileError):
        load_profile("nonsense")


def test_the_hot_path_needs_neither_numpy_nor_the_source() -> None:
    code = (
        "import sys, engine.simulated.cost as c; c.load_profile('h200-sxm/qwen3-8b').cost.step_s(4, 400, [(8, 0)]); "
        "print({'numpy', 'torch', 'vllm', 'aiconfigurator_core'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert shown.stdout.strip() == "set()"
