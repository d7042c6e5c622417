"""One request alone takes exactly what the parts say."""

from dataclasses import replace

import pytest

from loadgen.demand import Demand
from loadgen.simulate import Layout, Overheads, simulate
from loadgen.simulate.simulation import Simulation
from loadgen.slo.constraint import value_ms
from tests.loadgen.simulate.build import BLOCK, COST, LINK, layout, nothing_left, opened

OVER = Overheads(0.002, 0.003, 0.004)
BLOCK_BYTES = BLOCK * 10_000


def alone(one: Layout, demand: Demand, at_s: float = 0.5) -> dict[str, float]:
    simulation = Simulation(replace(one, overheads=OVER), opened([(at_s, demand)]))
    (result,) = simulation.run().results
    nothing_left(simulation)
    assert result.completed
    assert result.output_tokens == demand.output_tokens
    assert result.ttft_s is not None
    return {"ttft": result.ttft_s, "e2e": result.e2e_s, **dict(result.stages_s)}


def test_handed_off_with_the_first_token_shown_at_once() -> None:
    took = alone(layout(1, 1), Demand(100, 11))
    prefill_s = COST.step_s(0, 0, [(100, 0)])
    transfer_s = LINK.transfer_s(7 * BLOCK_BYTES)
    decode_s = COST.decode_run_s(1, 101, 10)
    assert took["ttft"] == pytest.approx(OVER.reserve_s + OVER.prefill_s + prefill_s)
    assert took["e2e"] == pytest.approx(took["ttft"] + OVER.decode_s + transfer_s + decode_s)
    assert took["queue"] == pytest.approx(OVER.reserve_s + OVER.prefill_s)
    assert took["prefill"] == pytest.approx(prefill_s)
    assert took["transfer"] == pytest.approx(transfer_s)
    assert took["decode_queue"] == pytest.approx(OVER.decode_s)
    assert took["decode"] == pytest.approx(decode_s)


def test_the_hand_off_is_the_longest_gap_between_tokens() -> None:
    one = replace(layout(1, 1), overheads=OVER)
    (result,) = simulate(one, opened([(0.0, Demand(100, 11))])).results
    gaps = result.token_gaps_s()
    steps_s = [COST.step_s(1, 101 + n) for n in range(10)]
    assert gaps[-1] == pytest.approx(OVER.decode_s + LINK.transfer_s(7 * BLOCK_BYTES) + steps_s[0])
    assert gaps[:-1] == pytest.approx(steps_s[1:], rel=0.005)
    assert value_ms("itl_max", result) == pytest.approx(gaps[-1] * 1e3)
    assert value_ms("itl_mean", result) == pytest.approx(value_ms("tpot", result))


def test_at_a_block_boundary_the_decode_worker_draws_the_first_token() -> None:
    took = alone(layout(1, 1), Demand(96, 11))
    prefill_s = COST.step_s(0, 0, [(96, 0)])
    before_s = OVER.reserve_s + OVER.prefill_s + prefill_s + OVER.decode_s + LINK.transfer_s(6 * BLOCK_BYTES)
    assert took["ttft"] == pytest.approx(before_s + COST.step_s(1, 96))
    assert took["e2e"] == pytest.approx(before_s + COST.decode_run_s(1, 96, 11))


def test_one_token_needs_no_transfer() -> None:
    one = replace(layout(1, 1), overheads=OVER)
    outcome = simulate(one, opened([(0.0, Demand(100, 1))]))
    assert (outcome.handoffs, outcome.moved_bytes) == (0, 0)
    assert outcome.results[0].e2e_s == pytest.approx(OVER.reserve_s + OVER.prefill_s + COST.step_s(0, 0, [(100, 0)]))


@pytest.mark.parametrize(("one", "path"), [(layout(colocated=1), "colocated"), (layout(1, 1), "local")])
def test_computed_where_it_is_decoded(one: Layout, path: str) -> None:
    demand = Demand(10, 5)
    took = alone(one, demand)
    prefill_s = COST.step_s(0, 0, [(10, 0)])
    assert took["ttft"] == pytest.approx(OVER.reserve_s + OVER.decode_s + prefill_s)
    assert took["e2e"] == pytest.approx(took["ttft"] + COST.decode_run_s(1, 11, 4))
    assert took["prefill"] == pytest.approx(prefill_s)
    assert simulate(one, opened([(0.0, demand)])).results[0].path == path


def test_across_nodes_the_slower_link_carries() -> None:
    near = alone(layout(1, 1), Demand(100, 5))
    far = alone(layout(1, 1, gpus_per_node=1), Demand(100, 5))
    assert near["transfer"] == pytest.approx(LINK.transfer_s(7 * BLOCK_BYTES))
    assert far["transfer"] == pytest.approx(2e-3 + 7 * BLOCK_BYTES / 1e8)


def test_a_shared_prefix_is_computed_once() -> None:
    demand = Demand(200, 5, prefix=(1, 2, 3), block_tokens=64)
    first, second = simulate(layout(colocated=1), opened([(0.0, demand), (1.0, demand)])).results
    assert (first.cached_tokens, second.cached_tokens) == (0, 192)
    assert dict(second.stages_s)["prefill"] == pytest.approx(COST.step_s(0, 0, [(8, 192)]))
