"""Metrics: what requests did and what the cluster is, with bounded labels and a current catalogue."""

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.cluster.snapshot import ClusterSnapshot, Integrity, PairSnapshot, WorkerSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from gateway.observe.catalogue import CATALOGUE, CLUSTER_METRICS, Kind
from gateway.observe.document import TARGET, render
from gateway.observe.elsewhere import ELSEWHERE
from gateway.observe.metrics import Metrics
from gateway.policy.control.rows import BucketRow, ClassRow, EarlyRow, FairRow, PolicySnapshot, QueueRow, RolesRow
from gateway.request.errors import Reason
from gateway.request.observer import Handoff, Moved
from gateway.request.phase import Phase
from gateway.request.record import Record
from proto.worker import Role

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values(metrics: Metrics) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def record(end: Phase, reason: Reason | None = None, path: str = "remote") -> Record:
    made = Record("id", "m", "acme", prompt_tokens=100, choices=1, started_s=10.0, path=path, reason=reason)
    made.phase = end
    made.entered_s = {Phase.QUEUED: 10.1, Phase.RESERVED: 10.6}
    made.cached_tokens = 64
    if end is Phase.DONE:
        made.first_token_s, made.last_token_s, made.ended_s = 10.5, 12.5, 12.6
        made.completion_tokens = 21
    return made


def worker() -> WorkerSnapshot:
    numbers: dict[str, Any] = {
        name: index
        for index, (name, kind) in enumerate(WorkerSnapshot.__annotations__.items())
        if kind in (int, float, "int", "float", float | None, "float | None")
    }
    texts: dict[str, Any] = {"worker_id": "d0", "epoch": "e", "address": "a", "reason": "", "model": "m", "engine": "x"}
    more: dict[str, Any] = {"engine_version": "1", "device": "cpu", "role": Role.DECODE, "status": WorkerStatus.READY}
    return WorkerSnapshot(**{**numbers, **texts, **more})


def snapshot() -> ClusterSnapshot:
    pair = PairSnapshot("p0", "d0", PairState.USABLE, "", "shm", 1e9, 0.1, 5, 500, 0.5, 1)
    return ClusterSnapshot("g", "disaggregated", "", (worker(),), (pair,), {"decoding": 2}, 3)


def policy() -> PolicySnapshot:
    rows = (ClassRow("default", 10, 2, 3, 400, 5, 600, 900.5, 800, 1),)
    fair = (FairRow("default", 10, 1.0, 2.0, 0.5, 1.5, 0.0),)
    buckets = (BucketRow("toy", "1-256", 8, 1, 2, 300, 5, 700, 1200),)
    early = (EarlyRow("decode_overloaded", 9, 1, 2, 3),)
    queue = (QueueRow("high", "default", 4),)
    roles = RolesRow({"together": 7, "handed": 3, "handed_later": 0}, ("b0", "b1"), 0.02, 1e-4, 0.0, {"b0": 512})
    return PolicySnapshot("blue-7", "forecast", rows, queue, fair, {}, 6, buckets, early, roles)


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.watch(snapshot, lambda: Integrity(0, 0, 0, 0, 0, 0, 4, ("late",)), "1.2", policy)
    return made


def test_without_names_nothing_is_labelled_with_a_part_of_the_fleet(metrics: Metrics) -> None:
    metrics.ended(record(Phase.DONE))
    found = metrics.render(names=False).decode()
    assert not any(f'"{name}"' in found for name in ("d0", "p0", "g"))
    assert 'tandem_ready{mode="disaggregated"} 1.0' in found
    assert "tandem_requests_total" in found
    assert "tandem_worker_status" not in found


def test_every_end_is_counted_once_by_outcome_reason_and_path(metrics: Metrics) -> None:
    metrics.ended(record(Phase.DONE))
    metrics.ended(record(Phase.REJECTED, Reason.KV_CAPACITY, path=""))
    metrics.ended(record(Phase.FAILED, Reason.WORKER_LOST))
    metrics.ended(record(Phase.CANCELLED, Reason.CLIENT_GONE))
    counted = {key: value for key, value in values(metrics).items() if key[0] == "tandem_requests_total"}
    assert sorted(dict(labels)["outcome"] for _, labels in counted) == ["cancelled", "done", "failed", "rejected"]
    assert set(counted.values()) == {1.0}


def test_times_of_a_finished_request(metrics: Metrics) -> None:
    metrics.ended(record(Phase.DONE))
    found = values(metrics)
    remote = (("path", "remote"),)
    assert found["tandem_time_to_first_token_seconds_sum", remote] == pytest.approx(0.5)
    assert found["tandem_time_per_output_token_seconds_sum", remote] == pytest.approx(0.1)
    assert found["tandem_request_seconds_sum", remote] == pytest.approx(2.6)
    assert found["tandem_cached_prompt_tokens_total", ()] == 64


def test_a_request_that_was_not_done_has_no_place_among_the_latencies(metrics: Metrics) -> None:
    metrics.ended(record(Phase.FAILED, Reason.WORKER_LOST))
    assert not [key for key in values(metrics) if key[0] == "tandem_request_seconds_count"]


def test_phases_are_timed_when_they_are_left(metrics: Metrics) -> None:
    account = record(Phase.RESERVED)
    metrics.phase_changed(account, Phase.RECEIVED, Phase.QUEUED, 10.1)
    metrics.phase_changed(account, Phase.QUEUED, Phase.RESERVED, 10.6)
    found = values(metrics)
    assert found["tandem_phase_seconds_sum", (("phase", "received"),)] == pytest.approx(0.1)
    assert found["tandem_phase_seconds_sum", (("phase", "queued"),)] == pytest.approx(0.5)


def test_b09_b10_b23_b31_events_have_their_counters(metrics: Metrics) -> None:
    account = record(Phase.DONE)
    metrics.handed_off(account, Handoff("id", "p0", "d0", "shm", 4096, 100, 0.01, 0.002))
    metrics.moved(account, Moved("id", "balance", "moved", "transfer", "d0", "d1", 7, {}))
    metrics.handoff_missing(account, "p0")
    metrics.ticket_expired(account, "p0", 31.0)
    metrics.retried(account, Phase.PREFILLING, Reason.WORKER_LOST, "gone")
    metrics.stream_broken(account)
    metrics.tokens_shown(5)
    metrics.tokenized(100, 0.01)
    metrics.responded("/v1/completions", 200)
    metrics.worker_moved("d0", WorkerStatus.READY, WorkerStatus.EJECTED, "")
    metrics.pair_moved("p0", "d0", PairState.USABLE, PairState.QUARANTINED, "")
    found = values(metrics)
    assert found["tandem_handoffs_total", (("transport", "shm"),)] == 1
    assert found["tandem_handoff_bytes_total", (("transport", "shm"),)] == 4096
    assert found["tandem_moves_total", (("outcome", "moved"), ("reason", "balance"))] == 1
    assert found["tandem_handoff_missing_total", ()] == 1
    assert found["tandem_tickets_expired_total", ()] == 1
    assert found["tandem_retries_total", (("phase", "prefilling"), ("reason", "worker_lost"))] == 1
    assert found["tandem_stream_broken_total", ()] == 1
    assert found["tandem_completion_tokens_total", ()] == 5
    assert found["tandem_prompt_tokens_total", ()] == 100
    assert found["tandem_http_responses_total", (("route", "/v1/completions"), ("status", "200"))] == 1
    assert found["tandem_worker_transitions_total", (("status", "ejected"),)] == 1
    assert found["tandem_pair_transitions_total", (("state", "quarantined"),)] == 1


def test_b54_the_clusters_figures_are_read_at_the_scrape(metrics: Metrics) -> None:
    found = values(metrics)
    one, d0 = worker(), ("worker", "d0")
    assert found["tandem_worker_kv_blocks", (("kind", "used"), d0)] == one.blocks_used
    assert found["tandem_worker_kv_blocks", (("kind", "reserved"), d0)] == one.blocks_reserved
    assert found["tandem_worker_preemptions_total", (d0,)] == one.preemptions
    assert found["tandem_leases", (("kind", "tickets"), d0)] == one.lease_tickets
    assert found["tandem_pair_bytes_total", (("decode", "d0"), ("prefill", "p0"))] == 500
    assert found["tandem_pair_failures_total", (("decode", "d0"), ("prefill", "p0"))] == 1
    assert found["tandem_requests_in_flight", (("phase", "decoding"),)] == 2
    assert (found["tandem_queue_length", ()], found["tandem_leases_overdue", ()]) == (3, 1)


def test_every_cluster_metric_of_the_catalogue_has_a_value(metrics: Metrics) -> None:
    names = {name for name, _ in values(metrics)}
    assert {spec.name for spec in CLUSTER_METRICS} <= names


def test_names_follow_the_rules_of_prometheus() -> None:
    for spec in CATALOGUE:
        assert spec.name.startswith("tandem_")
        assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER)
        assert bool(spec.buckets) == (spec.kind is Kind.HISTOGRAM)
        assert not {"request_id", "tenant"} & set(spec.labels)
    assert len({spec.name for spec in CATALOGUE}) == len(CATALOGUE)


def test_the_catalogue_page_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run: python -m gateway.observe.document"


def test_what_is_called_otherwise_elsewhere_exists_here() -> None:
    known = {spec.name: set(spec.labels) for spec in CATALOGUE}
    for _, _, here, how in ELSEWHERE:
        assert set(re.findall(r'(\w+)="', how)) <= known[here]
        assert set(re.findall(r"tandem_\w+", how)) <= known.keys()


def test_the_policy_s_figures_are_read_at_the_scrape(metrics: Metrics) -> None:
    seen = values(metrics)
    default = (("class", "default"),)
    assert seen["tandem_policy_info", (("policy", "blue-7"), ("rule", "forecast"))] == 1
    assert seen["tandem_policy_admitted", ()] == 6
    assert seen["tandem_policy_queue_length", (("band", "high"), *default)] == 4
    assert seen["tandem_estimates_under_tokens_total", default] == 400
    assert seen["tandem_realised_tokens_total", default] == 800
    short = (("answer_tokens", "1-256"), ("model", "toy"))
    assert seen["tandem_length_answers_total", short] == 8
    assert (seen["tandem_length_under_total", short], seen["tandem_length_under_tokens_total", short]) == (2, 300)
    assert (seen["tandem_length_over_total", short], seen["tandem_length_over_tokens_total", short]) == (5, 700)
    overloaded = ("reason", "decode_overloaded")
    verdicts = [seen["tandem_early_rejections_total", (overloaded, ("verdict", v))] for v in ("right", "wrong")]
    assert verdicts == [9, 1]
    assert seen["tandem_fairness_spent", (*default, ("measure", "slowdown"))] == 1.5


def test_ways_are_counted_where_roles_are_fluid(metrics: Metrics) -> None:
    found = values(metrics)
    assert found["tandem_fluid_ways_total", (("way", "handed"),)] == 3
    assert found["tandem_fluid_leaning_workers", ()] == 2
    assert found["tandem_fluid_limited_workers", ()] == 1
