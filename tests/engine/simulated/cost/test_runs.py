"""Closed forms over many decode steps equal the steps themselves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import StepCost, load_profile
from engine.simulated.cost.grid import Curve, convex_below
from tests.examples import examples

NAMES = ["toy", "instant", "h200-sxm/llama-3.1-8b", "h200-sxm/deepseek-r1"]
COSTS = {name: load_profile(name).cost for name in NAMES}
costs = pytest.mark.parametrize("cost", COSTS.values(), ids=NAMES)


@costs
@examples(40)
@given(batch=st.integers(1, 600), total=st.integers(1, 2_000_000), steps=st.integers(1, 400))
def test_a_run_is_the_sum_of_its_steps(cost: StepCost, batch: int, total: int, steps: int) -> None:
    one_by_one = sum(cost.step_s(batch, total + k * batch) for k in range(steps))
    assert cost.decode_run_s(batch, total, steps) == pytest.approx(one_by_one, rel=1e-9)


@costs
@examples(40)
@given(
    batch=st.integers(1, 600),
    total=st.integers(1, 2_000_000),
    first=st.integers(0, 50_000),
    second=st.integers(0, 50_000),
)
def test_a_run_may_be_split_anywhere(cost: StepCost, batch: int, total: int, first: int, second: int) -> None:
    parts = cost.decode_run_s(batch, total, first) + cost.decode_run_s(batch, total + first * batch, second)
    assert cost.decode_run_s(batch, total, first + second) == pytest.approx(parts, rel=1e-9)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "instant"])
@examples(60)
@given(batch=st.integers(1, 600), total=st.integers(1, 2_000_000), seconds=st.floats(0, 5_000))
def test_steps_within_inverts_a_run(name: str, batch: int, total: int, seconds: float) -> None:
    cost = COSTS[name]
    steps = cost.decode_steps_within(batch, total, seconds)
    assert cost.decode_run_s(batch, total, steps) <= seconds * (1 + 1e-9)
    assert cost.decode_run_s(batch, total, steps + 1) > seconds * (1 - 1e-9)


def test_nothing_takes_no_time() -> None:
    for cost in COSTS.values():
        assert cost.step_s(0, 0) == 0.0
        assert cost.decode_run_s(0, 0, 5) == 0.0
        assert cost.decode_run_s(5, 100, 0) == 0.0
        assert cost.breakdown(0, 0).total_s == 0.0


def test_an_engine_at_zero_cost_has_no_last_step() -> None:
    assert COSTS["instant"].decode_steps_within(1, 1, 0.0) >= 1 << 30


@costs
@given(
    batch=st.integers(0, 600),
    context=st.integers(1, 100_000),
    chunks=st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 65_536)), max_size=3),
)
def test_the_parts_of_a_step_add_up(cost: StepCost, batch: int, context: int, chunks: list[tuple[int, int]]) -> None:
    parts = cost.breakdown(batch, batch * context, chunks)
    assert parts.total_s == pytest.approx(cost.step_s(batch, batch * context, chunks))
    assert min(parts.compute_s, parts.memory_s, parts.collective_s, parts.overhead_s) >= -1e-12


def test_collective_time_needs_ranks() -> None:
    one = load_profile("h200-sxm/llama-3.1-8b?tp=1").cost.breakdown(64, 64_000)
    eight = load_profile("h200-sxm/llama-3.1-8b?tp=8").cost.breakdown(64, 64_000)
    assert one.collective_s == 0.0
    assert 0.1 < eight.collective_s / eight.total_s < 0.6


def test_decode_is_bound_by_memory_and_prefill_by_compute() -> None:
    cost = load_profile("h200-sxm/llama-3.1-8b").cost
    decode, prefill = cost.breakdown(8, 8 * 4096), cost.breakdown(0, 0, [(8192, 0)])
    assert decode.memory_s > 0.95 * decode.total_s
    assert prefill.compute_s > 0.9 * prefill.total_s


def test_a_curve_refuses_knots_that_do_not_rise() -> None:
    with pytest.raises(ValueError, match="knots must rise"):
        Curve([1, 2, 2], [0, 1, 2])
    with pytest.raises(ValueError, match="as many values"):
        Curve([1, 2], [0])


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_the_convex_curve_lies_below_and_never_flattens(ys: list[float]) -> None:
    curve = Curve(range(len(ys)), ys)
    below = convex_below(curve)
    assert all(below.at(x) <= y + 1e-9 for x, y in zip(curve.xs, curve.ys, strict=True))
    assert all(after >= before - 1e-9 for before, after in pairwise(below.slopes))
    assert (below.ys[0], below.ys[-1]) == (curve.ys[0], curve.ys[-1])
