"""Figures of workers, pairs and leases, read from the cluster at the moment of a scrape."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.cluster.snapshot import ClusterSnapshot, Integrity, PairSnapshot, WorkerSnapshot
from gateway.observe.catalogue import CLUSTER_METRICS, Kind, Spec

#: (label values, value)
Sample = tuple[tuple[str, ...], float]
Family = GaugeMetricFamily | CounterMetricFamily


class ClusterCollector(Collector):
    """One writer a figure (B-54): nothing here is remembered between scrapes."""

    def __init__(
        self,
        snapshot: Callable[[], ClusterSnapshot],
        integrity: Callable[[], Integrity],
        version: str,
        specs: Sequence[Spec],
    ) -> None:
        self._snapshot = snapshot
        self._integrity = integrity
        self._version = version
        self._specs = specs

    def describe(self) -> Iterable[Family]:
        return ()  # registration must not ask a cluster that has not started

    def collect(self) -> Iterator[Family]:
        samples = cluster_samples(self._snapshot(), self._integrity(), self._version)
        for spec in self._specs:
            kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(spec.name.removesuffix("_total"), spec.help, labels=spec.labels)
            for labels, value in samples[spec.name]:
                family.add_metric(labels, value)
            yield family


def cluster_samples(snapshot: ClusterSnapshot, integrity: Integrity, version: str) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {spec.name: [] for spec in CLUSTER_METRICS}
    samples["tandem_build_info"] = [((version, snapshot.gateway_id), 1.0)]
    samples["tandem_ready"] = [((snapshot.mode,), float(snapshot.ready))]
    samples["tandem_requests_in_flight"] = [((phase,), float(count)) for phase, count in snapshot.in_flight.items()]
    samples["tandem_queue_length"] = [((), float(snapshot.queued))]
    samples["tandem_leases_overdue"] = [((), float(len(integrity.overdue)))]
    samples["tandem_cleanups"] = [((), float(integrity.cleanups))]
    for worker in snapshot.workers:
        for name, labels, value in _of_worker(worker):
            samples[name].append(((worker.worker_id, *labels), float(value)))
    for pair in snapshot.pairs:
        for name, labels, value in _of_pair(pair):
            samples[name].append(((pair.prefill_worker, pair.decode_worker, *labels), float(value)))
    return samples


def _of_worker(worker: WorkerSnapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "tandem_worker_status", (worker.role.value, worker.status.value), 1
    if worker.state_age_s is not None:
        yield "tandem_worker_state_age_seconds", (), worker.state_age_s
    yield "tandem_worker_kv_blocks", ("total",), worker.blocks_total
    yield "tandem_worker_kv_blocks", ("used",), worker.blocks_used
    yield "tandem_worker_kv_blocks", ("reserved",), worker.blocks_reserved
    yield "tandem_worker_sequences", ("running",), worker.running
    yield "tandem_worker_sequences", ("waiting",), worker.waiting
    yield "tandem_worker_reservations", (), worker.reservations
    yield "tandem_worker_tickets_held", (), worker.tickets_held
    yield "tandem_worker_step_seconds", (), worker.step_time_s
    yield "tandem_worker_kv_promised_blocks", (), worker.blocks_promised
    yield "tandem_worker_overrun_risk", (), worker.overrun_risk
    if worker.error_budget:
        yield "tandem_worker_error_budget", (), worker.error_budget
    yield "tandem_worker_pool_blocks", ("total",), worker.pool_blocks
    yield "tandem_worker_pool_blocks", ("used",), worker.pool_blocks_used
    yield "tandem_worker_preemptions_total", (), worker.preemptions
    yield "tandem_worker_recomputed_tokens_total", (), worker.recomputed_tokens
    yield "tandem_worker_prompt_tokens_total", (), worker.prompt_tokens
    yield "tandem_worker_cached_prompt_tokens_total", (), worker.cached_prompt_tokens
    yield "tandem_worker_generated_tokens_total", (), worker.generated_tokens
    yield "tandem_worker_tickets_total", ("issued",), worker.tickets_issued
    yield "tandem_worker_tickets_total", ("expired",), worker.tickets_expired
    yield "tandem_worker_tickets_total", ("released",), worker.tickets_released
    yield "tandem_worker_failed_notifications_total", (), worker.failed_notifications
    yield "tandem_worker_consecutive_faults", (), worker.consecutive_faults
    yield "tandem_leases", ("reservations",), worker.lease_reservations
    yield "tandem_leases", ("prefills",), worker.lease_prefills
    yield "tandem_leases", ("tickets",), worker.lease_tickets
    yield "tandem_leases", ("sequences",), worker.sequences


def _of_pair(pair: PairSnapshot) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "tandem_pair_state", (pair.transport or "unknown", pair.state.value), 1
    yield "tandem_pair_bandwidth_bytes_per_second", (), pair.bytes_per_s
    yield "tandem_pair_transfers_total", (), pair.transfers
    yield "tandem_pair_bytes_total", (), pair.bytes
    yield "tandem_pair_seconds_total", (), pair.seconds
    yield "tandem_pair_failures_total", (), pair.failures
