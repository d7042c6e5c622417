"""What once went wrong: refusals by the thousand, late grants, ends of windows and of runs, workers that die twice."""

import pytest

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.result import Ending
from loadgen.simulate import Addition, Declared, Failure, Layout, Overheads, RoleChange, simulate
from loadgen.simulate.simulation import Simulation
from proto.worker import Role
from tests.loadgen.simulate.build import closed, layout, nothing_left, opened

LONG = Demand(100, 400)
#: More than Python calls within calls.
MANY = 1500


def test_a_closed_loop_of_refusals_ends() -> None:
    outcome = simulate(layout(colocated=1), closed([Demand(5000, 5)] * MANY, 2))
    assert {result.reason for result in outcome.results} == {"context_length_exceeded"}


def test_a_whole_queue_is_turned_away_at_once() -> None:
    gone = RoleChange("decode-0", Role.PREFILL, 0.2)
    one = layout(1, 1, blocks=40, gateway={"admission": {"max_queued": 2 * MANY}}, changes=(gone,))
    simulation = Simulation(one, opened([(0.0, LONG)] * MANY))
    outcome = simulation.run()
    assert [result.reason for result in outcome.results] == [""] + ["no_decode_worker"] * (MANY - 1)
    nothing_left(simulation)


def test_a_grant_that_comes_after_the_queue_deadline_is_given_back() -> None:
    one = layout(1, 1, gateway={"deadlines": {"queue_s": 0.0005}}, overheads=Overheads(reserve_s=0.001))
    simulation = Simulation(one, opened([(0.0, LONG)]))
    result = simulation.run().results[0]
    assert (result.reason, result.worker, result.stages_s) == ("queue_timeout", "", ())
    nothing_left(simulation)


def test_a_declared_answer_past_the_window_is_refused_as_at_the_door() -> None:
    result = simulate(layout(colocated=1), opened([(0.0, Demand(2000, 400))])).results[0]
    assert (result.ending, result.reason, result.status) == (Ending.REJECTED, "context_length_exceeded", 400)


def test_an_undeclared_answer_ends_with_the_window_and_counts_no_more() -> None:
    result = simulate(layout(colocated=1, declared=Declared.NONE), opened([(0.0, Demand(2000, 400))])).results[0]
    assert (result.ending, result.output_tokens) == (Ending.COMPLETED, 48)


def test_shares_of_kv_are_over_the_run_and_not_over_idle_timers() -> None:
    outcome = simulate(layout(colocated=1, blocks=40), opened([(0.0, LONG)] * 20))
    assert outcome.telemetry.points[-1].at_s == pytest.approx(outcome.duration_s)
    assert outcome.workers[0].kv_used > 0.4


def test_a_dead_worker_strands_nothing() -> None:
    one = layout(1, 1, blocks=40, changes=(Failure("decode-0", 0.1, 100.0),))
    outcome = simulate(one, opened([(0.0, LONG)] * 3))
    assert outcome.duration_s > 1
    assert [worker.kv_stranded for worker in outcome.workers] == [0.0, 0.0]


def test_a_worker_that_dies_again_while_it_is_down_is_back_after_the_later_time() -> None:
    twice = (Failure("colocated-0", 0.1, 0.5), Failure("colocated-0", 0.4, 0.5))
    result = simulate(layout(colocated=1, changes=twice), opened([(0.5, Demand(100, 5))])).results[0]
    assert result.completed
    assert result.end_s > 0.9


def _growing(change: Addition) -> Layout:
    return layout(1, 1, changes=(change,), start_s=0.1)


def test_gpus_added_later_count() -> None:
    assert _growing(Addition(Role.DECODE, 2, 0.1)).gpus == 4


def test_no_pool_of_that_role_to_add_to_is_said() -> None:
    with pytest.raises(LoadgenError, match="no both pool"):
        _growing(Addition(Role.BOTH, 1, 0.1))


@pytest.mark.parametrize("prefill", [0, 1])
def test_an_answer_that_outgrows_all_kv_counts_what_its_client_got(prefill: int) -> None:
    """640 tokens of KV hold all of 641 tokens but the last, which nobody reads."""
    one = layout(prefill, prefill, 1 - prefill, blocks=40, declared=Declared.NONE)
    simulation = Simulation(one, opened([(0.0, Demand(300, 600))]))
    result = simulation.run().results[0]
    assert (result.reason, result.output_tokens) == ("kv_capacity", 341)
    nothing_left(simulation)
