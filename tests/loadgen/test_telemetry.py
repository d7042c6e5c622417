"""Figures out of Prometheus texts of the servers we know."""

from loadgen.client.telemetry import Point, Telemetry, parse, rebase

VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
"""
TANDEM = """# TYPE tandem_queue_length gauge
tandem_queue_length 2
# TYPE tandem_worker_kv_blocks gauge
tandem_worker_kv_blocks{worker="p",kind="total"} 100
tandem_worker_kv_blocks{worker="p",kind="used"} 10
tandem_worker_kv_blocks{worker="p",kind="reserved"} 50
tandem_worker_kv_blocks{worker="d",kind="total"} 300
tandem_worker_kv_blocks{worker="d",kind="used"} 90
# TYPE tandem_worker_sequences gauge
tandem_worker_sequences{worker="d",kind="running"} 6
tandem_worker_sequences{worker="d",kind="waiting"} 1
# TYPE tandem_handoff_bytes counter
tandem_handoff_bytes_total{transport="shm"} 1000
tandem_handoff_bytes_total{transport="tcp"} 500
"""


def test_vllm_figures_are_summed_over_engines() -> None:
    assert parse(VLLM) == {"queue": 7, "running": 5, "preemptions": 4, "kv": 0.6}


def test_tandem_figures_are_summed_over_workers() -> None:
    found = parse(TANDEM)
    assert (found["queue"], found["running"], found["engine_waiting"]) == (2, 6, 1)
    assert found["kv"] == 0.25
    assert found["bytes_moved"] == 1500


def test_counters_survive_a_restart_of_the_target() -> None:
    points = [Point(float(i), {"preemptions": v}) for i, v in enumerate((5.0, 8.0, 1.0, 2.0))]
    telemetry = rebase(Telemetry(points), 1.0)
    assert telemetry.growth("preemptions") == 3 + 1 + 1
    assert telemetry.peak("preemptions") == 8
    assert telemetry.series("preemptions")[0] == (-1.0, 5.0)
    assert telemetry.growth("nothing") is None


def test_unknown_texts_give_nothing() -> None:
    assert parse("# TYPE other gauge\nother 1\n") == {}
