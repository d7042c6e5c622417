"""Host time as a what-if: equal for every run, in closed form as step by step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost import load_profile
from engine.simulated.cost.linear import LinearCost
from loadgen.demand import Demand
from loadgen.reproduce.batch import run_on
from loadgen.reproduce.host import HostCost, with_host
from loadgen.reproduce.layout import Layout

KERNELS = LinearCost(base_s=2e-3, token_s=20e-6, context_token_s=40e-9, token_pair_s=1e-9)
CLOCK = replace(load_profile("toy"), cost=LinearCost(base_s=0.01))


def test_added_or_hidden_by_hand() -> None:
    kernels = KERNELS.step_s(100, 10_000)
    assert HostCost(KERNELS, 10e-6, hidden=False).step_s(100, 10_000) == pytest.approx(kernels + 1e-3)
    assert HostCost(KERNELS, 10e-6, hidden=True).step_s(100, 10_000) == kernels
    assert HostCost(KERNELS, 1e-3, hidden=True).step_s(100, 10_000) == pytest.approx(0.1)
    parts = HostCost(KERNELS, 10e-6, hidden=False).breakdown(100, 10_000, [(64, 0)])
    before = KERNELS.breakdown(100, 10_000, [(64, 0)])
    assert parts.overhead_s - before.overhead_s == pytest.approx(101 * 10e-6)
    assert parts.compute_s == before.compute_s


def test_replicas_share_it_out() -> None:
    """100 sequences at 1 ms each on one engine, or 25 each on four."""
    slow = with_host(CLOCK, 1e-3)
    demands = [Demand(8, 5)] * 100
    one, four = (run_on(slow, Layout(dp=dp), demands, max_num_seqs=256).makespan_s for dp in (1, 4))
    assert one == pytest.approx(5 * 0.11)
    assert four == pytest.approx(5 * 0.035)
    assert with_host(CLOCK, 0.0) is CLOCK


@given(
    st.integers(1, 200), st.integers(1, 3000), st.integers(1, 300), st.sampled_from([1e-6, 2e-5, 2e-4]), st.booleans()
)
def test_runs_equal_their_steps(batch: int, context: int, steps: int, sequence_s: float, hidden: bool) -> None:
    cost = HostCost(KERNELS, sequence_s, hidden=hidden)
    total = sum(cost.step_s(batch, batch * (context + k)) for k in range(steps))
    assert cost.decode_run_s(batch, batch * context, steps) == pytest.approx(total, rel=1e-9)
    assert cost.decode_steps_within(batch, batch * context, total * (1 + 1e-9)) >= steps
    assert cost.decode_steps_within(batch, batch * context, total * (1 - 1e-6)) < steps
