"""Writes docs/metrics.md from the catalogue: `python -m gateway.observe.document`."""

from collections.abc import Iterable
from pathlib import Path

from gateway.observe.catalogue import (
    CLUSTER_METRICS,
    POLICY_METRICS,
    REQUEST_METRICS,
    TRACE_METRICS,
    VERSION_METRICS,
    Spec,
)
from gateway.observe.elsewhere import ELSEWHERE

TARGET = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

_HEAD = """# Metrics

Served by the gateway at `GET /metrics`, in the Prometheus text format. This page is generated from
`gateway/observe/catalogue.py` by `python -m gateway.observe.document`; a test fails when it is out of date.

Every label has a bounded set of values: phases, reasons, outcomes, paths and transports are closed lists, routes are
patterns, `policy` is one of the last 8 versions, and `worker`, `prefill` and `decode` are the ids of connected workers. The usual `process_*` metrics of the
gateway process come with them. Where `api_keys` is set, metrics with the labels `worker`, `prefill`, `decode` or `gateway`
are for scrapers with an operator's key (`Authorization: Bearer KEY`); the others need none.

A Grafana dashboard of them is in [deploy/grafana.json](../deploy/grafana.json), made by `python -m gateway.observe.dashboard`, and
rules for alerts in [deploy/alerts.yaml](../deploy/alerts.yaml). What other gateways call the same figures is [at the end](#coming-from-another-gateway).
"""


def render() -> str:
    tables = (
        ("Requests", REQUEST_METRICS),
        ("Policy", POLICY_METRICS),
        ("Versions of the policy", VERSION_METRICS),
        ("Cluster", CLUSTER_METRICS),
        ("Traces", TRACE_METRICS),
    )
    return "\n".join([_HEAD, *[line for title, specs in tables for line in _table(title, specs)], *_elsewhere()])


def _table(title: str, specs: Iterable[Spec]) -> list[str]:
    lines = [f"## {title}", "", "| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for spec in specs:
        labels = ", ".join(f"`{label}`" for label in spec.labels) or "–"
        lines.append(f"| `{spec.name}` | {spec.kind.value} | {labels} | {spec.help} |")
    return [*lines, ""]


def _elsewhere() -> list[str]:
    lines = ["## Coming from another gateway", "", "The nearest figure to what Dynamo and llm-d call so:", ""]
    lines += ["| what | there | here |", "| --- | --- | --- |"]
    for what, names, here, how in ELSEWHERE:
        there = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {what} | {there} | `{here}`{f' ({how})' if how else ''} |")
    return [*lines, ""]


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
