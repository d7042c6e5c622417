"""What a benchmark must publish (R-65): a top rate alone says little."""

from collections.abc import Mapping
from typing import Any

#: Stands where the target gives no word and the user gave none.
NOT_TOLD = "not told by the target"

_PERCENTILES = ("p50", "p90", "p95", "p99")


def missing(data: Mapping[str, Any]) -> list[str]:
    """Which of the five are missing; one that says it was not told is there."""
    workload, scenario = data.get("workload", {}), data.get("scenario", {})
    description = workload.get("description", {})
    lengths = [description.get(name, {}) for name in ("input_tokens", "output_tokens")]
    present = {
        "arrival distribution": bool(workload.get("arrivals")),
        "length distribution": all(_whole(each) for each in lengths),
        "admission limit": bool(scenario.get("admission_limit")),
        "preemption policy": bool(scenario.get("preemption_policy")),
        "latency percentiles": all(_has_percentiles(run) for run in data.get("runs", ())),
    }
    return [name for name, there in present.items() if not there]


def not_told(data: Mapping[str, Any]) -> list[str]:
    """Facts of the scenario that nobody stated."""
    return [name for name, value in data["scenario"].items() if value in (NOT_TOLD, "not stated")]


def _has_percentiles(run: Mapping[str, Any]) -> bool:
    """A run in which nothing completed has none to give."""
    overall = run.get("overall", {})
    latencies = overall.get("latency_ms", {})
    return not overall.get("completed") or all(_whole(latencies.get(metric, {})) for metric in ("ttft", "e2el"))


def _whole(distribution: Mapping[str, Any]) -> bool:
    return all(distribution.get(p) is not None for p in _PERCENTILES)
