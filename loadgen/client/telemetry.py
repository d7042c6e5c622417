"""What the target says of itself during a run: its /metrics, sampled."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic

from prometheus_client.parser import text_string_to_metric_families

from loadgen.client.target import Target, get
from loadgen.client.wire import ConnectionLostError, Pool

#: Our name -> (exported name, label that must have a value) of the servers we know; summed over the other labels.
_GAUGES: dict[str, tuple[tuple[str, tuple[str, str] | None], ...]] = {
    "queue": (("tandem_queue_length", None), ("vllm:num_requests_waiting", None)),
    "engine_waiting": (("tandem_worker_sequences", ("kind", "waiting")),),
    "running": (("tandem_worker_sequences", ("kind", "running")), ("vllm:num_requests_running", None)),
    "kv_used_blocks": (("tandem_worker_kv_blocks", ("kind", "used")),),
    "kv_total_blocks": (("tandem_worker_kv_blocks", ("kind", "total")),),
}
#: Already a share; averaged over its labels.
_SHARES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_COUNTERS: dict[str, tuple[str, ...]] = {
    "preemptions": ("tandem_worker_preemptions_total", "vllm:num_preemptions_total"),
    "recomputed_tokens": ("tandem_worker_recomputed_tokens_total",),
    "bytes_moved": ("tandem_handoff_bytes_total",),
    "handoffs": ("tandem_handoffs_total",),
}

Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]


@dataclass(frozen=True, slots=True)
class Point:
    """One look. Counters are as the target counts them; `kv` is the share of KV in use."""

    at_s: float
    values: dict[str, float]


@dataclass(slots=True)
class Telemetry:
    """`at_s` counts from the start of the run."""

    points: list[Point] = field(default_factory=list)

    def series(self, name: str) -> list[tuple[float, float]]:
        return [(p.at_s, p.values[name]) for p in self.points if name in p.values]

    def peak(self, name: str) -> float | None:
        return max((v for _, v in self.series(name)), default=None)

    def mean(self, name: str) -> float | None:
        values = [v for _, v in self.series(name)]
        return sum(values) / len(values) if values else None

    def growth(self, name: str) -> float | None:
        """Of a counter over the run; a restart of the target in between counts from zero again."""
        values = [v for _, v in self.series(name)]
        if not values:
            return None
        return sum(b - a if b >= a else b for a, b in pairwise(values))


def parse(text: str) -> dict[str, float]:
    """The figures we know out of a Prometheus text."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    return dict(_figures(samples))


def _figures(samples: Samples) -> Iterator[tuple[str, float]]:
    for name, sources in _GAUGES.items():
        for exported, label in sources:
            values = [v for labels, v in samples.get(exported, []) if label is None or labels.get(label[0]) == label[1]]
            if values:
                yield name, sum(values)
                break
    for name, exporteds in _COUNTERS.items():
        for exported in exporteds:
            if exported in samples:
                yield name, sum(v for _, v in samples[exported])
                break
    yield from _kv(samples)


def _kv(samples: Samples) -> Iterator[tuple[str, float]]:
    for exported in _SHARES:
        values = [v for _, v in samples.get(exported, [])]
        if values:
            yield "kv", sum(values) / len(values)
            return
    blocks = samples.get("tandem_worker_kv_blocks", [])
    used = sum(v for labels, v in blocks if labels.get("kind") == "used")
    total = sum(v for labels, v in blocks if labels.get("kind") == "total")
    if total:
        yield "kv", used / total


class _Text:
    def __init__(self) -> None:
        self.status = 0
        self.data = bytearray()

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None:
        self.status = status

    def body(self, data: bytes, at_s: float) -> None:
        self.data += data

    def complete(self, at_s: float) -> None:
        pass


async def sample(target: Target, telemetry: Telemetry, every_s: float = 1.0) -> None:
    """Until cancelled. A target without /metrics is asked three times, then left alone.

    Times are put on the monotonic clock; `rebase` moves them once the start of the run is known.
    """
    pool = Pool(target.endpoint)
    failures = 0
    try:
        while failures < 3:
            answer = _Text()
            try:
                async with asyncio.timeout(5):
                    await pool.exchange(get(target, f"{target.prefix}/metrics"), answer)
                values = parse(answer.data.decode()) if answer.status == 200 else {}
            except (ConnectionLostError, TimeoutError, ValueError):
                values = {}
            failures = 0 if values else failures + 1
            if values:
                telemetry.points.append(Point(monotonic(), values))
            await asyncio.sleep(every_s)
    finally:
        pool.close()


def rebase(telemetry: Telemetry, origin_s: float) -> Telemetry:
    return Telemetry([Point(p.at_s - origin_s, p.values) for p in telemetry.points])
