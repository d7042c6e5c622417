"""The summary document: everything a report is made of, as plain JSON. Its schema is published in docs/schemas."""

import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.client.stages import STAGES
from loadgen.experiment import Experiment
from loadgen.measure.distribution import Distribution
from loadgen.measure.groups import Group
from loadgen.measure.interval import Interval
from loadgen.report.validation import NOT_TOLD
from loadgen.result import Result
from loadgen.search import Answer, Probe
from loadgen.slo.constraint import value_ms
from loadgen.trial import Trial
from loadgen.workload.describe import describe

SCHEMA = "loadgen-summary/1"
_CDF_POINTS = 101
_TIMELINE_POINTS = 240


@dataclass(frozen=True, slots=True)
class Scenario:
    """Under which conditions the figures hold. What the target does not tell, the user may; the rest is `NOT_TOLD`."""

    given: Mapping[str, str] = field(default_factory=dict)

    #: A benchmark without these says little.
    WANTED = ("engine", "engine_version", "model", "precision", "node", "admission_limit", "preemption_policy")

    def as_dict(self, trials: Sequence[Trial]) -> dict[str, str]:
        told: dict[str, dict[str, None]] = {}
        for trial in trials:
            for key, value in (("model", trial.observation.model), *trial.observation.versions.items()):
                if value:
                    told.setdefault(key if key in self.WANTED else f"server_{key}", {})[value] = None
        # arms may differ
        found = {key: " / ".join(values) for key, values in told.items()} | dict(self.given)
        return {key: found.pop(key, NOT_TOLD) for key in self.WANTED} | found


def document(
    kind: str,
    experiment: Experiment,
    trials: Sequence[Trial],
    *,
    config: Mapping[str, Any],
    scenario: Scenario,
    started: datetime,
    searches: Sequence[Mapping[str, Any]] = (),
    comparison: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plain data, ready for JSON."""
    policy = experiment.policy
    data = {
        "schema": SCHEMA,
        "kind": kind,
        "tool": tool(),
        "started": started.astimezone(UTC).isoformat(timespec="seconds"),
        "config": dict(config),
        "scenario": scenario.as_dict(trials),
        "workload": _workload(experiment, trials),
        "slo": {
            "form": policy.form,
            "name": policy.name,
            "source": policy.source,
            "limits": policy.describe(),
        },
        "runs": [run(trial) for trial in trials],
        "searches": [dict(s) for s in searches],
        "comparison": None if comparison is None else dict(comparison),
    }
    plain: dict[str, Any] = _plain(data)
    return plain


def tool() -> dict[str, str]:
    try:
        ours = version("tandem-serve")
    except PackageNotFoundError:
        ours = "unknown"
    return {"name": "loadgen", "version": ours, "git": _git_hash(), "python": platform.python_version()}


def _git_hash() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _workload(experiment: Experiment, trials: Sequence[Trial]) -> dict[str, Any]:
    first = trials[0].schedule if trials else experiment.schedule()
    times = [p.at_s for p in first.requests] if first.arrivals.open_loop else None
    return {
        "name": experiment.workload.name,
        "notes": list(experiment.workload.notes()),
        "arrivals": first.arrivals.describe(),
        "sessions": experiment.sessions.value,
        "seed": experiment.seed,
        "salt": experiment.salt,
        "description": asdict(describe([p.demand for p in first.requests], times)),
    }


def run(trial: Trial) -> dict[str, Any]:
    """One run."""
    m = trial.measures
    return {
        "arm": trial.arm,
        "origin": trial.origin,
        "gpus": trial.gpus,
        "rate": trial.rate,
        "repetition": trial.repetition,
        "arrivals": trial.schedule.arrivals.describe(),
        "schedule": {
            "digest": trial.schedule.digest,
            "seed": trial.schedule.seed,
            "requests": len(trial.schedule.requests),
            "window_s": trial.schedule.window_s,
        },
        "complete": trial.observation.complete,
        "invalid": list(m.invalid),
        "warnings": list(m.warnings),
        "notes": list(trial.observation.notes),
        "duration_s": m.duration_s,
        "cancelled": m.cancelled,
        "tpot_not_applicable": m.not_applicable,
        "load": asdict(m.load),
        "goodput": asdict(m.goodput),
        "cost": asdict(m.cost),
        "overall": group(m.overall),
        "by_class": {k: group(g) for k, g in m.by_class.items()},
        "by_tenant": {k: group(g) for k, g in m.by_tenant.items()},
        "by_bucket": {k: group(g) for k, g in m.by_bucket.items()},
        "saturation": asdict(m.saturation),
        "relative": None
        if m.relative is None
        else [{**asdict(c.condition), "value": c.value, "held": c.held} for c in m.relative],
        "slo_scale": [list(pair) for pair in trial.scales],
        "stages_ms": _stages(trial.observation.results),
        "telemetry": _telemetry(trial),
        "curves": _curves(trial.observation.results),
    }


def group(g: Group) -> dict[str, Any]:
    return asdict(g)


def _stages(results: Sequence[Result]) -> dict[str, Any]:
    """Only of targets that give a breakdown."""
    known = [dict(r.stages_s) for r in results if r.completed and r.stages_s]
    if not known:
        return {}
    return {s: asdict(Distribution.of([k.get(s, 0.0) * 1e3 for k in known])) for s in STAGES}


def _telemetry(trial: Trial) -> dict[str, Any]:
    telemetry = trial.observation.telemetry
    names = sorted({name for p in telemetry.points for name in p.values})
    step = max(1, len(telemetry.points) // _TIMELINE_POINTS)
    return {
        "peaks": {n: telemetry.peak(n) for n in ("queue", "running", "kv") if n in names},
        "means": {n: telemetry.mean(n) for n in ("queue", "running", "kv") if n in names},
        "counts": {
            n: telemetry.growth(n)
            for n in ("preemptions", "recomputed_tokens", "bytes_moved", "handoffs")
            if n in names
        },
        "timeline": [[p.at_s, {k: p.values[k] for k in sorted(p.values)}] for p in telemetry.points[::step]],
    }


def _curves(results: Sequence[Result]) -> dict[str, Any]:
    """Latency CDFs as (ms at 0, 1, … 100 %), and requests under way over time."""
    completed = [r for r in results if r.completed]
    cdfs = {}
    for metric in ("ttft", "tpot", "e2el"):
        values = [v for r in completed if (v := value_ms(metric, r)) is not None]
        if values:
            cdfs[metric] = np.percentile(values, np.linspace(0, 100, _CDF_POINTS)).tolist()
    return {"cdf_ms": cdfs, "open_requests": _open_requests(results)}


def _open_requests(results: Sequence[Result]) -> list[list[float]]:
    if not results:
        return []
    end = max(r.end_s for r in results)
    moments = np.linspace(0, end, min(_TIMELINE_POINTS, 120))
    begun = np.searchsorted(np.sort([r.sent_s for r in results]), moments, "right")
    ended = np.searchsorted(np.sort([r.end_s for r in results]), moments, "right")
    return [[float(t), int(n)] for t, n in zip(moments, begun - ended, strict=True)]


def search_document(
    arm: str,
    gpus: float,
    probes: Sequence[Probe],
    answers: Sequence[Answer],
    lowest: float,
    highest: float,
    *,
    whole_runs: bool = False,
) -> dict[str, Any]:
    """Rates are of the whole arm; `per_gpu` is the measure of DistServe. With `whole_runs` a probe is all or nothing."""
    return {
        "arm": arm,
        "gpus": gpus,
        "lowest": lowest,
        "highest": highest,
        "judged": "runs" if whole_runs else "requests",
        "probes": [asdict(p) for p in sorted(probes, key=lambda p: p.rate)],
        "answers": [{**asdict(a), "per_gpu": None if a.low is None else a.low / gpus} for a in answers],
    }


def _plain(value: Any) -> Any:
    """JSON has no infinities, and numpy numbers are not ours."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Interval):
        return _plain(asdict(value))
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return _plain(value.item()) if hasattr(value, "item") else str(value)
