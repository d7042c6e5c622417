"""Figures by version of the policy, read at the moment of a scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gateway.observe.catalogue import VERSION_METRICS
from gateway.policy_versions.outcomes import Account, Outcomes


class VersionCollector(Collector):
    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def describe(self) -> Iterable[CounterMetricFamily]:
        return ()

    def collect(self) -> Iterator[CounterMetricFamily]:
        families = {
            spec.name: CounterMetricFamily(spec.name.removesuffix("_total"), spec.help, labels=spec.labels)
            for spec in VERSION_METRICS
        }
        for version, account in self._outcomes:
            for name, labels, value in _samples(account):
                families[name].add_metric((version, *labels), value)
        yield from families.values()


def _samples(account: Account) -> Iterator[tuple[str, tuple[str, ...], float]]:
    for outcome, count in (
        ("done", account.completed),
        ("rejected", account.refused.total()),
        ("failed", account.failed.total()),
        ("cancelled", account.abandoned),
    ):
        yield "tandem_policy_requests_total", (outcome,), float(count)
    for reason, count in account.refused.items():
        yield "tandem_policy_refusals_total", (reason,), float(count)
    yield "tandem_policy_estimated_tokens_total", (), account.estimated_tokens
    yield "tandem_policy_realised_tokens_total", (), float(account.realised_tokens)
