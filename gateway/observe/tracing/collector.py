"""How many requests' spans were lost, read at the moment of a scrape."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gateway.observe.catalogue import TRACE_METRICS


class LostSpansCollector(Collector):
    def __init__(self, lost: Callable[[], int]) -> None:
        self._lost = lost

    def describe(self) -> Iterable[CounterMetricFamily]:
        return ()

    def collect(self) -> Iterator[CounterMetricFamily]:
        for spec in TRACE_METRICS:
            family = CounterMetricFamily(spec.name.removesuffix("_total"), spec.help)
            family.add_metric((), float(self._lost()))
            yield family
