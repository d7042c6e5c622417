"""Clients in virtual time: who waits, leaves, is refused; and what they are told."""

from dataclasses import replace

import pytest

from loadgen.arrivals.process import Arrivals
from loadgen.demand import Demand
from loadgen.result import Ending
from loadgen.schedule import Planned, Schedule
from loadgen.simulate import Declared, Failure, RoleChange, simulate
from proto.worker import Role
from tests.loadgen.simulate.build import closed, free_of_overheads, layout, opened

LONG = Demand(100, 400)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    outcome = simulate(layout(colocated=2), closed([Demand(50, 20)] * 40, 4))
    edges = sorted([(r.sent_s, 1) for r in outcome.results] + [(r.end_s, -1) for r in outcome.results])
    open_now = peak = 0
    for _, step in edges:
        open_now += step
        peak = max(peak, open_now)
    assert peak == 4
    assert all(result.completed for result in outcome.results)


def test_a_paced_turn_follows_the_answer_before_it_by_its_think_time() -> None:
    turns = (Planned(0, 0.0, LONG), Planned(1, 0.1, Demand(200, 5, think_s=2.0), after=0))
    first, second = simulate(layout(colocated=1), Schedule(turns, 1.0, Arrivals(), 0)).results
    assert second.intended_s == pytest.approx(first.end_s + 2.0)


def test_patience_ends_with_the_first_token() -> None:
    one = layout(colocated=1, blocks=40)
    hurried = Demand(100, 400, patience_s=0.1)
    first, second = simulate(one, opened([(0.0, hurried), (0.01, hurried)])).results
    assert first.completed  # it had begun, so its client waited
    assert second.ending is Ending.ABANDONED
    assert second.end_s == pytest.approx(0.11)


def test_a_planned_leave_takes_its_tokens_and_frees_the_rest() -> None:
    result = simulate(layout(1, 1), opened([(0.0, replace(LONG, leave_after_tokens=7))])).results[0]
    assert (result.ending, result.reason, result.output_tokens) == (Ending.CANCELLED, "plan", 7)


def test_refusals_have_the_gateways_reasons() -> None:
    one = layout(colocated=1, blocks=40, gateway={"admission": {"max_queued": 1}, "deadlines": {"queue_s": 0.2}})
    demands = [LONG, LONG, LONG, Demand(1000, 400), Demand(3000, 5), Demand(500, 300)]
    outcome = simulate(one, opened([(0.001 * n, demand) for n, demand in enumerate(demands)]))
    found = [(result.ending.value, result.reason, result.status) for result in outcome.results]
    assert found[0] == ("completed", "", 200)
    assert found[1] == ("rejected", "queue_timeout", 503)
    assert found[2] == ("rejected", "queue_full", 429)
    assert found[3] == ("rejected", "kv_capacity", 400)
    assert found[4] == ("rejected", "context_length_exceeded", 400)
    assert found[5] == ("rejected", "kv_capacity", 400)


def test_reserved_lengths_prevent_preemption_and_none_at_all_invites_it() -> None:
    load = opened([(0.001 * n, LONG) for n in range(10)])
    reserved = simulate(layout(colocated=1, blocks=120), load)
    unguarded = simulate(layout(colocated=1, blocks=120, admission=False), load)
    guessed = simulate(
        layout(colocated=1, blocks=120, declared=Declared.NONE, gateway={"admission": {"default_output_tokens": 50}}),
        load,
    )
    assert reserved.preemptions == 0
    assert unguarded.preemptions >= guessed.preemptions > 0
    assert unguarded.recomputed_tokens > 0
    assert all(r.completed for outcome in (reserved, unguarded, guessed) for r in outcome.results)


def test_a_lost_decode_worker_breaks_streams_and_a_lost_prefill_worker_does_not() -> None:
    decode = simulate(layout(1, 1, changes=(Failure("decode-0", 0.2, 0.5),)), opened([(0.0, LONG)])).results[0]
    assert (decode.ending, decode.reason) == (Ending.FAILED, "worker_lost")
    assert 0 < decode.output_tokens < 400
    prompt = Demand(1500, 5)
    prefill = simulate(layout(1, 1, changes=(Failure("prefill-0", 0.005, 0.5),)), opened([(0.0, prompt)])).results[0]
    assert prefill.completed
    assert prefill.path == "local"


def test_a_worker_that_becomes_both_serves_by_itself() -> None:
    one = layout(1, 1, changes=(RoleChange("prefill-0", Role.BOTH, 0.5),))
    outcome = simulate(one, opened([(0.1 * n, Demand(300, 50)) for n in range(20)]))
    assert {r.worker for r in outcome.results if r.intended_s < 0.5} == {"decode-0"}
    assert "prefill-0" in {r.worker for r in outcome.results if r.intended_s > 0.5}


def test_stranded_kv_is_free_here_while_another_waits() -> None:
    """Two engines without control and one long line: the second has room that the first cannot use."""
    one = free_of_overheads(layout(colocated=2, blocks=60, admission=False))
    sizes = [Demand(800, 100) if n % 2 == 0 else Demand(20, 3) for n in range(400)]
    outcome = simulate(one, opened([(0.02 * n, demand) for n, demand in enumerate(sizes)]))
    assert outcome.telemetry.peak("kv_stranded_blocks") is not None
    assert max(worker.kv_stranded for worker in outcome.workers) > 0.0
    assert all(0.0 <= worker.kv_used <= 1.0 for worker in outcome.workers)


def test_a_decode_worker_lost_during_prefill_is_avoided_in_the_retry() -> None:
    one = layout(1, 2, changes=(Failure("decode-0", 0.005, 0.001),))
    result = simulate(one, opened([(0.0, Demand(1500, 5))])).results[0]
    assert result.completed
    assert result.worker == "decode-1"
