"""Counts and times requests, as the lifecycle and the surface report them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from gateway.cluster.snapshot import ClusterSnapshot, Integrity
from gateway.cluster.states import PairState, WorkerStatus
from gateway.observe.catalogue import CLUSTER_METRICS, NAMELESS_METRICS, REQUEST_METRICS, Kind
from gateway.observe.cluster_collector import ClusterCollector
from gateway.observe.policy_collector import PolicyCollector
from gateway.policy.control.rows import PolicySnapshot
from gateway.request.errors import Reason, RequestError
from gateway.request.observer import Handoff, Moved
from gateway.request.phase import Phase
from gateway.request.record import Record


class Metrics:
    """A SurfaceObserver. Label children that every request needs are looked up once."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._named, self._nameless = CollectorRegistry(), CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for spec in REQUEST_METRICS:
            if spec.kind is Kind.COUNTER:
                name = spec.name.removesuffix("_total")
                self._counters[spec.name] = Counter(name, spec.help, spec.labels, registry=self._registry)
            else:
                self._histograms[spec.name] = Histogram(
                    spec.name, spec.help, spec.labels, registry=self._registry, buckets=spec.buckets
                )
        phases = self._histograms["tandem_phase_seconds"]
        self._phase = {phase: phases.labels(phase.value) for phase in Phase if not phase.final}
        self._shown = self._counters["tandem_completion_tokens_total"]

    def watch(
        self,
        snapshot: Callable[[], ClusterSnapshot],
        integrity: Callable[[], Integrity],
        version: str,
        policy: Callable[[], PolicySnapshot] | None = None,
    ) -> None:
        """Adds what is read from the cluster and the policy whenever somebody scrapes."""
        if policy is not None:
            self._registry.register(PolicyCollector(policy))
        self._named.register(ClusterCollector(snapshot, integrity, version, CLUSTER_METRICS))
        self._nameless.register(ClusterCollector(snapshot, integrity, version, NAMELESS_METRICS))

    def add(self, collector: Collector) -> None:
        """What somebody else counts, read whenever somebody scrapes."""
        self._registry.register(collector)

    def render(self, names: bool = True) -> bytes:
        """Without `names`, nothing that has a worker's or a gateway's name as a label."""
        return generate_latest(self._registry) + generate_latest(self._named if names else self._nameless)

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None:
        began_s = record.started_s if before is Phase.RECEIVED else record.entered_s.get(before)
        if began_s is not None and not before.final:
            self._phase[before].observe(max(0.0, now_s - began_s))

    def refused(self, record: Record, error: RequestError) -> None:
        pass  # counted by `ended`, with every other outcome

    def handed_off(self, record: Record, handoff: Handoff) -> None:
        transport = handoff.transport or "unknown"
        self._counters["tandem_handoffs_total"].labels(transport).inc()
        self._counters["tandem_handoff_bytes_total"].labels(transport).inc(handoff.kv_bytes)
        self._histograms["tandem_handoff_seconds"].labels(transport).observe(handoff.transfer_s)
        self._histograms["tandem_handoff_ticket_age_seconds"].observe(handoff.ticket_age_s)

    def moved(self, record: Record, moved: Moved) -> None:
        self._counters["tandem_moves_total"].labels(moved.why, moved.outcome).inc()

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        self._counters["tandem_handoff_missing_total"].inc()

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        self._counters["tandem_tickets_expired_total"].inc()

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        self._counters["tandem_retries_total"].labels(phase.value, reason.value).inc()

    def ended(self, record: Record) -> None:
        path = record.path or "none"
        reason = record.reason.value if record.reason else "none"
        self._counters["tandem_requests_total"].labels(record.phase.value, reason, path).inc()
        self._counters["tandem_cached_prompt_tokens_total"].inc(record.cached_tokens)
        if record.capped:
            self._counters["tandem_answers_capped_total"].inc(record.capped)
        first_s, last_s, ended_s = record.first_token_s, record.last_token_s, record.ended_s
        if first_s is not None:
            self._observe("tandem_time_to_first_token_seconds", path, first_s - record.started_s)
        if record.phase is not Phase.DONE:
            return
        if ended_s is not None:
            self._observe("tandem_request_seconds", path, ended_s - record.started_s)
        gaps = record.completion_tokens - record.choices
        if first_s is not None and last_s is not None and gaps > 0:
            self._observe("tandem_time_per_output_token_seconds", path, (last_s - first_s) * record.choices / gaps)
        self._histograms["tandem_request_prompt_tokens"].observe(record.prompt_tokens)
        self._histograms["tandem_request_completion_tokens"].observe(record.completion_tokens)

    def _observe(self, name: str, path: str, seconds: float) -> None:
        self._histograms[name].labels(path).observe(seconds)

    def worker_moved(self, worker_id: str, before: WorkerStatus, after: WorkerStatus, reason: str) -> None:
        self._counters["tandem_worker_transitions_total"].labels(after.value).inc()

    def pair_moved(
        self, prefill_worker: str, decode_worker: str, before: PairState, after: PairState, reason: str
    ) -> None:
        self._counters["tandem_pair_transitions_total"].labels(after.value).inc()

    def responded(self, route: str, status: int) -> None:
        self._counters["tandem_http_responses_total"].labels(route, str(status)).inc()

    def stream_broken(self, record: Record) -> None:
        self._counters["tandem_stream_broken_total"].inc()

    def tokenized(self, tokens: int, seconds: float) -> None:
        self._counters["tandem_prompt_tokens_total"].inc(tokens)
        self._histograms["tandem_tokenize_seconds"].observe(seconds)

    def tokens_shown(self, count: int) -> None:
        self._shown.inc(count)
