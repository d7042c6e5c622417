"""Running totals from what each step reports."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.vllm.meter import Meter
from proto.worker import StepTotals
from transfer.nixl import rows


def _step(usage: float = 0.0, running: int = 0, waiting: int = 0, computed: bool = True, **rest: Any) -> Any:
    return SimpleNamespace(
        kv_cache_usage=usage,
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        num_skipped_waiting_reqs=rest.get("skipped", 0),
        prefix_cache_stats=SimpleNamespace(
            preempted_queries=rest.get("queries", 0), preempted_hits=rest.get("hits", 0)
        ),
        iteration_details=_details(**rest.get("did", {})) if computed else None,
        kv_connector_stats=rest.get("transfers"),
    )


def _details(prompt_tokens: int = 0, answers: int = 1) -> Any:
    return SimpleNamespace(num_ctx_tokens=prompt_tokens, num_generation_requests=answers)


def test_blocks_and_queues_are_the_newest() -> None:
    meter = Meter(blocks_total=200)
    meter.scheduler(_step(usage=0.5, running=3, waiting=1, skipped=2), 1.0)
    stats = meter.snapshot()
    assert (stats.blocks_total, stats.blocks_used, stats.running, stats.waiting) == (200, 100, 3, 3)


def test_what_was_aborted_since_the_latest_step_neither_runs_nor_waits() -> None:
    meter = Meter()
    meter.scheduler(_step(running=2, waiting=14), 1.0)
    for unfinished, running, waiting in ((16, 2, 14), (5, 2, 3), (1, 1, 0), (0, 0, 0)):
        stats = meter.snapshot(unfinished)
        assert (stats.running, stats.waiting) == (running, waiting)


def test_a_step_lasts_from_the_one_before_and_a_pause_is_not_a_step() -> None:
    meter = Meter()
    meter.scheduler(_step(running=1), 10.0)
    meter.scheduler(_step(running=0), 10.1)
    assert meter.snapshot().step_time_s == pytest.approx(0.1)
    meter.scheduler(_step(running=1), 99.0)
    meter.scheduler(_step(running=1), 99.2)
    stats = meter.snapshot()
    assert stats.steps == 4
    assert 0.1 < stats.step_time_s < 0.2


def test_steps_with_prompts_are_added_up_apart() -> None:
    meter = Meter(blocks_total=100, block_size_tokens=16)
    meter.scheduler(_step(usage=0.1, running=2), 1.0)
    meter.scheduler(_step(usage=0.1, running=2, did={"answers": 2}), 1.25)
    meter.scheduler(_step(usage=0.2, running=3, did={"answers": 2, "prompt_tokens": 300}), 1.75)
    meter.scheduler(_step(usage=0.2, running=3, did={"answers": 3}), 2.0)
    assert meter.snapshot().totals == StepTotals(2, 0.5, 5, 160 + 320, 1, 0.5, 300, 2, 320)


def test_steps_that_only_waited_do_not_count() -> None:
    meter = Meter()
    meter.scheduler(_step(waiting=1, computed=False), 1.0)
    meter.scheduler(_step(waiting=1, computed=False), 1.001)
    assert meter.snapshot().steps == 0


def test_recomputed_tokens_are_what_preempted_requests_ran_again() -> None:
    meter = Meter()
    meter.scheduler(_step(queries=500, hits=128), 1.0)
    assert meter.snapshot().recomputed_tokens == 372


def test_ranks_add_their_bytes_and_overlap_in_time() -> None:
    meter = Meter()
    meter.transfers({rows.PULLS: [["r.1", "w@e1", 100, 0.2], ["r.1", "w@e1", 100, 0.3]]})
    meter.transfers({rows.PULLS: [["r.2", "w@e2", 50, 0.1]], rows.FAILED_PULLS: ["w@e3"]})
    (peer,) = meter.snapshot().transfers
    assert (peer.worker_id, peer.transfers, peer.bytes, peer.failures) == ("w", 2, 250, 1)
    assert peer.seconds == pytest.approx(0.4)
    assert meter.pulled_s("r.1") == pytest.approx(0.3)
    assert meter.pulled_s("r.1") == 0.0


def test_a_lease_that_ends_on_two_ranks_expires_once_and_a_read_one_does_not() -> None:
    meter = Meter(held={"a", "b"})
    meter.transfers({rows.EXPIRED_SENDS: ["a"]})
    assert meter.snapshot().tickets_held == 2
    meter.transfers({rows.EXPIRED_SENDS: ["a"], rows.ENDED_SENDS: ["a", "b"]})
    stats = meter.snapshot()
    assert (stats.tickets_held, stats.tickets_expired) == (0, 1)
