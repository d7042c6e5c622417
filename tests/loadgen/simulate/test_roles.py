"""Fluid roles in the simulator: the policy sees what engines do, and engines do what it wants."""

from functools import partial

import pytest

from gateway.policy.roles import Aims, Fluid, Knobs
from loadgen.demand import Demand
from loadgen.simulate.simulation import Simulation
from tests.loadgen.simulate.build import COST, layout, nothing_left, opened


def run(simulation: Simulation) -> Fluid:
    simulation.run()
    nothing_left(simulation)
    assert simulation.fleet.roles is not None
    return simulation.fleet.roles.policy


def test_the_policy_learns_how_long_steps_take() -> None:
    demands = [(n * 0.05, Demand(400, 100)) for n in range(100)]
    policy = run(Simulation(layout(colocated=2, roles=partial(Fluid, Aims(1.0, 0.005))), opened(demands)))
    step_s = COST.step_s(4, 4 * 450, [])
    assert abs(policy.law.step_s(4, 4 * 450) / step_s - 1) < 0.2


def test_a_prompt_does_not_stop_the_answers_beside_it() -> None:
    """With a limit of 3 ms a token, a chunk that takes longer is paid for out of what was saved, or not taken."""
    demands = [(0.0, Demand(10, 400)), *((0.1 + n * 0.05, Demand(500, 2)) for n in range(8))]
    one = layout(colocated=1, blocks=400, roles=partial(Fluid, Aims(5.0, 0.003)))
    outcome = Simulation(one, opened(demands)).run()
    unlimited = Simulation(layout(colocated=1, blocks=400), opened(demands)).run()
    assert (outcome.results[0].tpot_s or 1) <= 0.003
    assert max(r.ttft_s or 0 for r in outcome.results) >= max(r.ttft_s or 0 for r in unlimited.results)


@pytest.mark.slow
def test_who_leans_computes_for_others() -> None:
    """Prompts without end beside short answers under a limit that no chunk of use fits into."""
    demands = [(n * 0.004, Demand(500, 30)) for n in range(1000)]
    roles = partial(Fluid, Aims(1.0, 0.0014), knobs=Knobs(tpot_share=0.9, every_s=0.2, memory_s=2.0))
    simulation = Simulation(layout(colocated=4, roles=roles), opened(demands))
    outcome = simulation.run()
    nothing_left(simulation)
    assert outcome.handoffs > 300
