"""Strides and single steps are the same simulation; nothing is lost on the way; the same again is the same."""

from dataclasses import replace

import pytest

from loadgen.simulate import simulate
from loadgen.simulate.simulation import Simulation
from tests.loadgen.simulate.build import nothing_left
from tests.loadgen.simulate.cases import Case, case, harsh

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_fast_mode_equals_single_steps_exactly_and_keeps_accounts(seed: int) -> None:
    _agrees(case(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_so_it_does_where_much_goes_wrong(seed: int) -> None:
    _agrees(harsh(seed))


def _agrees(drawn: Case) -> None:
    simulation = Simulation(drawn.layout, drawn.schedule)
    fast = simulation.run()
    nothing_left(simulation)
    assert [result.index for result in fast.results] == list(range(len(drawn.schedule.requests)))
    for result in fast.results:
        assert result.end_s >= result.intended_s
        assert result.output_tokens <= result.planned_output_tokens
        if result.stages_s:
            assert all(seconds >= -1e-9 for _, seconds in result.stages_s), result
            assert sum(seconds for _, seconds in result.stages_s) == pytest.approx(result.e2e_s)
        if result.completed:
            assert result.gaps is not None
            assert result.first_s is not None
            assert len(result.gaps) == result.output_tokens - 1
            assert result.gaps.total_s == pytest.approx(result.end_s - result.first_s)
            assert result.gaps.longest_s == result.token_gaps_s().max(initial=0.0)
    slow = simulate(replace(drawn.layout, closed_form=False), drawn.schedule)
    assert slow.results == fast.results
    assert slow.telemetry == fast.telemetry
    assert (slow.moved_bytes, slow.handoffs) == (fast.moved_bytes, fast.handoffs)
    assert slow.preemptions == fast.preemptions
    assert [worker.host for worker in slow.workers] == [worker.host for worker in fast.workers]


def test_the_same_again_is_the_same() -> None:
    drawn = case(3)
    assert simulate(drawn.layout, drawn.schedule) == simulate(drawn.layout, drawn.schedule)


@pytest.mark.slow
def test_the_cases_reach_every_path_and_ending() -> None:
    """Else the agreement above says less than it seems to."""
    paths, endings, reasons, preempted, loads = set(), set(), set(), 0, 0
    for seed in range(60):
        drawn = case(seed)
        outcome = simulate(drawn.layout, drawn.schedule)
        paths |= {result.path for result in outcome.results}
        endings |= {result.ending.value for result in outcome.results}
        reasons |= {result.reason for result in outcome.results}
        preempted += outcome.preemptions
        loads += sum(worker.host.loads for worker in outcome.workers if worker.host is not None)
    assert paths >= {"remote", "local", "colocated"}
    assert endings == {"completed", "rejected", "failed", "abandoned", "cancelled"}
    assert reasons >= {"queue_full", "queue_timeout", "worker_lost", "patience", "plan"}
    assert preempted
    assert loads
