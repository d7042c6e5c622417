"""Figures of the policy, read from its controller at the moment of a scrape."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.observe.catalogue import POLICY_METRICS, Kind
from gateway.observe.cluster_collector import Family, Sample
from gateway.policy.control.rows import PolicySnapshot


class PolicyCollector(Collector):
    """Nothing here is remembered between scrapes."""

    def __init__(self, snapshot: Callable[[], PolicySnapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        samples = policy_samples(self._snapshot())
        for spec in POLICY_METRICS:
            kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(spec.name.removesuffix("_total"), spec.help, labels=spec.labels)
            for labels, value in samples[spec.name]:
                family.add_metric(labels, value)
            yield family


def policy_samples(policy: PolicySnapshot) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {spec.name: [] for spec in POLICY_METRICS}
    samples["tandem_policy_info"] = [((policy.version, policy.rule), 1.0)]
    samples["tandem_policy_admitted"] = [((), float(policy.admitted))]
    samples["tandem_policy_queue_length"] = [((row.band, row.klass), float(row.waiting)) for row in policy.queue]
    for row in policy.lengths:
        for name, value in (
            ("tandem_estimates_total", row.requests),
            ("tandem_estimates_cut_total", row.left_early),
            ("tandem_estimates_under_total", row.under_requests),
            ("tandem_estimates_under_tokens_total", row.under_tokens),
            ("tandem_estimates_over_total", row.over_requests),
            ("tandem_estimates_over_tokens_total", row.over_tokens),
            ("tandem_estimated_tokens_total", row.estimated_tokens),
            ("tandem_realised_tokens_total", row.realised_tokens),
            ("tandem_estimate_drifts_total", row.drifts),
        ):
            samples[name].append(((row.klass,), float(value)))
    for bucket in policy.buckets:
        for name, value in (
            ("tandem_length_answers_total", bucket.answers),
            ("tandem_length_under_total", bucket.under_answers),
            ("tandem_length_under_tokens_total", bucket.under_tokens),
            ("tandem_length_over_total", bucket.over_answers),
            ("tandem_length_over_tokens_total", bucket.over_tokens),
            ("tandem_length_realised_tokens_total", bucket.realised_tokens),
        ):
            samples[name].append(((bucket.model, bucket.answer_tokens), float(value)))
    if policy.roles is not None:
        samples["tandem_fluid_ways_total"] = [((way,), float(count)) for way, count in policy.roles.ways.items()]
        samples["tandem_fluid_leaning_workers"] = [((), float(len(policy.roles.leaning)))]
        samples["tandem_fluid_limited_workers"] = [((), float(len(policy.roles.step_tokens)))]
    for early in policy.early:
        for verdict, count in (("right", early.right), ("wrong", early.wrong), ("unjudged", early.unjudged)):
            samples["tandem_early_rejections_total"].append(((early.reason, verdict), float(count)))
    for fair in policy.fairness:
        for measure, spent in (
            ("completion", fair.completion_spent),
            ("slowdown", fair.slowdown_spent),
            ("abandonment", fair.abandonment_spent),
        ):
            samples["tandem_fairness_spent"].append(((fair.klass, measure), spent))
    return samples
