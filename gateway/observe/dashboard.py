"""Writes the Grafana dashboard, deploy/grafana.json, from the catalogue: `python -m gateway.observe.dashboard`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.observe.catalogue import CATALOGUE, Kind, Spec

TARGET = Path(__file__).resolve().parents[2] / "deploy" / "grafana.json"

_SPECS = {spec.name: spec for spec in CATALOGUE}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 8


@dataclass(frozen=True, slots=True)
class Query:
    """`legend` has labels in double braces, as Grafana writes them."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str


def _of(name: str, kind: Kind, *labels: str) -> Spec:
    """A typing error must not make an empty panel."""
    spec = _SPECS[name]
    if spec.kind is not kind or not set(labels) <= set(spec.labels):
        raise ValueError(f"{name} is a {spec.kind} by {spec.labels}, no {kind} by {labels}")
    return spec


def _legend(labels: tuple[str, ...], more: str = "") -> str:
    return " ".join([f"{{{{{label}}}}}" for label in labels] + ([more] if more else [])) or "all"


def _rates(name: str, *by: str, where: str = "") -> Panel:
    """What is counted, per second."""
    spec = _of(name, Kind.COUNTER, *by)
    total = f"rate({name}{where}[$__rate_interval])"
    unit = "Bps" if "bytes" in name else "cps"
    return Panel("", unit, (Query(f"sum by ({', '.join(by)}) ({total})", _legend(by)),), spec.help)


def _quantiles(name: str, *by: str) -> Panel:
    spec = _of(name, Kind.HISTOGRAM, *by)
    sums = f"sum by ({', '.join(('le', *by))}) (rate({name}_bucket[$__rate_interval]))"
    queries = [Query(f"histogram_quantile({q}, {sums})", _legend(by, f"p{round(100 * q)}")) for q in (0.5, 0.9, 0.99)]
    return Panel("", "s", tuple(queries), spec.help)


def _values(name: str, *by: str, where: str = "", unit: str = "short") -> Panel:
    spec = _of(name, Kind.GAUGE, *by)
    return Panel("", unit, (Query(f"sum by ({', '.join(by)}) ({name}{where})", _legend(by)),), spec.help)


def _shares(name: str, part: str, whole: str, by: str) -> Panel:
    spec = _of(name, Kind.GAUGE, by, "kind")
    sums = [f'sum by ({by}) ({name}{{kind="{kind}"}})' for kind in (part, whole)]
    return Panel("", "percentunit", (Query(" / ".join(sums), _legend((by,))),), spec.help)


def _ratio(name: str, other: str, by: str) -> Panel:
    spec = _of(name, Kind.COUNTER, by)
    _of(other, Kind.COUNTER, by)
    sums = [f"sum by ({by}) (increase({each}[15m]))" for each in (name, other)]
    return Panel("", "percentunit", (Query(" / ".join(sums), _legend((by,))),), spec.help)


#: Rows of the dashboard, from what users see down to single workers.
ROWS: dict[str, dict[str, Panel]] = {
    "What users see": {
        "Requests that ended": _rates("tandem_requests_total", "outcome"),
        "Refused or failed, by reason": _rates("tandem_requests_total", "reason", where='{outcome=~"rejected|failed"}'),
        "Broken streams": _rates("tandem_stream_broken_total"),
        "Time to first token": _quantiles("tandem_time_to_first_token_seconds", "path"),
        "Time per output token": _quantiles("tandem_time_per_output_token_seconds", "path"),
        "Answer tokens": _rates("tandem_completion_tokens_total"),
    },
    "Where the time goes": {
        "In flight, by phase": _values("tandem_requests_in_flight", "phase"),
        "Time in each phase": _quantiles("tandem_phase_seconds", "phase"),
        "Waiting for KV": _values("tandem_policy_queue_length", "class"),
        "Hand-offs": _rates("tandem_handoffs_total", "transport"),
        "Pulling one prompt's KV": _quantiles("tandem_handoff_seconds", "transport"),
        "KV moved, by pair": _rates("tandem_pair_bytes_total", "prefill", "decode"),
    },
    "Admission": {
        "Longer than their 90 % quantile": _ratio("tandem_estimates_under_total", "tandem_estimates_total", "class"),
        "Chance of overrun": _values("tandem_worker_overrun_risk", "worker", unit="percentunit"),
        "Emergency pool in use": _shares("tandem_worker_pool_blocks", "used", "total", "worker"),
        "Recomputed tokens": _rates("tandem_worker_recomputed_tokens_total", "worker"),
        "Early refusals, by hindsight": _rates("tandem_early_rejections_total", "reason", "verdict"),
        "Fairness budget spent": _values("tandem_fairness_spent", "class", "measure", unit="percentunit"),
    },
    "Workers": {
        "KV in use": _shares("tandem_worker_kv_blocks", "used", "total", "worker"),
        "KV reserved": _shares("tandem_worker_kv_blocks", "reserved", "total", "worker"),
        "Running": _values("tandem_worker_sequences", "worker", where='{kind="running"}'),
        "Step time": _values("tandem_worker_step_seconds", "worker", unit="s"),
        "Ways of prompts (fluid roles)": _rates("tandem_fluid_ways_total", "way"),
        "Leases overdue: anything but 0 is a defect": _values("tandem_leases_overdue"),
    },
}


def dashboard() -> dict[str, Any]:
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "tandem",
        "title": "tandem",
        "tags": ["llm", "tandem"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": list(_laid_out()),
    }


def _laid_out() -> Iterator[dict[str, Any]]:
    number = top = 0
    for row, panels in ROWS.items():
        number += 1
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for at, (title, panel) in enumerate(panels.items()):
            number += 1
            left = at * _WIDTH % _COLUMNS
            down = top + at * _WIDTH // _COLUMNS * _HEIGHT
            place = {"h": _HEIGHT, "w": _WIDTH, "x": left, "y": down}
            yield {
                "id": number,
                "type": "timeseries",
                "title": title,
                "description": panel.about,
                "datasource": _SOURCE,
                "gridPos": place,
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + n), "datasource": _SOURCE, "expr": one.expression, "legendFormat": one.legend}
                    for n, one in enumerate(panel.queries)
                ],
            }
        top += -(-len(panels) * _WIDTH // _COLUMNS) * _HEIGHT


def render() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
