"""The files of a run: summary JSON, one JSONL record per request, CSV."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.failure import LoadgenError
from loadgen.measure.verdict import Judged
from loadgen.report.document import SCHEMA
from loadgen.result import Ending, Result
from loadgen.slo.constraint import value_ms
from loadgen.trial import Trial

_LATENCIES = ("ttft", "tpot", "e2el", "itl_mean", "itl_p99", "itl_max")


def save(folder: Path, data: Mapping[str, Any], trials: Sequence[Trial], *, gaps: bool = False) -> list[Path]:
    """Writes all but the page."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = folder / "summary.json"
    summary.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))
    requests = folder / "requests.jsonl"
    with requests.open("wb") as out:
        for trial in trials:
            for row in request_rows(trial, gaps=gaps):
                out.write(orjson.dumps(row) + b"\n")
    table = folder / "summary.csv"
    write_csv(table, data)
    return [summary, requests, table]


def load(path: Path) -> dict[str, Any]:
    """A summary, from its file or its folder."""
    file = path / "summary.json" if path.is_dir() else path
    try:
        data = orjson.loads(file.read_bytes())
    except FileNotFoundError:
        raise LoadgenError(f"{file}: no such file") from None
    except orjson.JSONDecodeError as error:
        raise LoadgenError(f"{file}: not JSON ({error})") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise LoadgenError(f"{file}: not a summary of schema {SCHEMA}")
    return data


def request_rows(trial: Trial, *, gaps: bool = False) -> Iterator[dict[str, Any]]:
    """One record per request, cancelled ones included, in order of the schedule."""
    judged = {j.result.index: j for j in trial.measures.judged}
    for result in trial.observation.results:
        yield _row(trial, result, judged.get(result.index), gaps)


def _row(trial: Trial, r: Result, judged: Judged | None, gaps: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "arm": trial.arm,
        "rate": trial.rate,
        "repetition": trial.repetition,
        "index": r.index,
        "class": r.klass,
        "tenant": r.tenant,
        "session": r.session,
        "turn": r.turn,
        "intended_s": round(r.intended_s, 6),
        "send_lag_ms": round(r.send_lag_s * 1e3, 3),
        "end_s": round(r.end_s, 6),
        "ending": r.ending.value,
        "verdict": "cancelled" if judged is None or r.ending is Ending.CANCELLED else judged.verdict.value,
        "missed": [] if judged is None else list(judged.missed),
        "not_applicable": [] if judged is None else list(judged.skipped),
        "reason": r.reason,
        "status": r.status,
        "planned_prompt_tokens": r.planned_prompt_tokens,
        "planned_output_tokens": r.planned_output_tokens,
        "prompt_tokens": r.prompt_tokens,
        "cached_tokens": r.cached_tokens,
        "output_tokens": r.output_tokens,
        "tokens_from": r.tokens_from,
        "finish": r.finish,
    }
    for metric in _LATENCIES:
        value = value_ms(metric, r) if r.first_s is not None else None
        row[f"{metric}_ms"] = None if value is None else round(value, 3)
    if r.stages_s:
        row["stages_ms"] = {name: round(seconds * 1e3, 3) for name, seconds in r.stages_s}
    if r.worker:
        row |= {"worker": r.worker, "path": r.path}
    if gaps:
        row["token_gaps_ms"] = [round(g * 1e3, 3) for g in r.token_gaps_s().tolist()]
    return row


def write_csv(path: Path, data: Mapping[str, Any]) -> None:
    """One line per run."""
    rows = [_flat(run) for run in data["runs"]]
    with path.open("w", newline="") as out:
        if rows:
            writer = csv.DictWriter(out, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _flat(run: Mapping[str, Any]) -> dict[str, Any]:
    overall, load = run["overall"], run["load"]
    row = {k: run[k] for k in ("arm", "gpus", "rate", "repetition", "duration_s", "complete")}
    row["valid"] = not run["invalid"]
    row |= {
        k: load[k] for k in ("offered_rps", "achieved_rps", "completed_rps", "output_tokens_ps", "peak_concurrency")
    }
    row["send_lag_p99_ms"] = load["send_lag_ms"]["p99"]
    row |= {k: overall[k] for k in ("offered", "completed", "abandoned")} | overall["counts"]
    row["cancelled"] = run["cancelled"]
    row["attainment"] = overall["attainment"]
    row |= {f"goodput_{k}": v for k, v in run["goodput"].items()}
    row |= {
        f"{m}_{p}_ms": overall["latency_ms"][m][p]
        for m in ("ttft", "tpot", "itl", "e2el")
        for p in ("p50", "p90", "p95", "p99")
    }
    row["saturated"] = run["saturation"]["saturated"]
    return row | {k: run["cost"][k] for k in ("gpu_hours", "per_1000_good")}
