"""What was asked of a service, from its records: loadgen's requests.jsonl, a gateway's log, or any workload.

Arrivals and lengths are taken; what became of the requests then is not: that is what the replay finds out anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.schedule import Plan, Planned, Schedule, build
from loadgen.workload.spec import Catalogue
from loadgen.workload.trace import TraceWorkload

#: What a line of loadgen's requests.jsonl has, and no trace.
_OURS = frozenset({"intended_s", "planned_prompt_tokens", "planned_output_tokens", "ending"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """`run` picks one of several runs of a requests.jsonl, from 0. `rate` of a workload without times of its own."""

    run: int = 0
    rate: float | None = None
    requests: int | None = None
    duration_s: float | None = None
    time_scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    schedule: Schedule
    notes: tuple[str, ...]


def read(log: str, wanted: Wanted) -> Recorded:
    """`log`: a file, or the words of a workload. Raises LoadgenError."""
    path = Path(log)
    if path.is_dir():
        path = path / "requests.jsonl"
    if path.is_file():
        kind = _kind(path)
        if kind is not None:
            demands, notes = _requests(path, wanted.run) if kind == "loadgen" else _gateway_log(path)
            return Recorded(_scheduled(path.stem, demands, wanted), tuple(notes))
    elif path.suffix == ".jsonl":
        raise LoadgenError(f"{log}: no such file")
    return _workload(log, wanted)


def _kind(path: Path) -> str | None:
    """By its first line that is an object of a known kind; a gateway's log has other lines between."""
    for row in _rows(path):
        if row.keys() >= _OURS:
            return "loadgen"
        if _is_request(row):
            return "gateway"
        if "event" not in row:
            return None
    return None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as lines:
            for line in lines:
                try:
                    row = orjson.loads(line[line.find(b"{") :])  # a gateway's log has time and logger before it
                except orjson.JSONDecodeError:
                    continue
                if isinstance(row, dict):
                    yield row
    except OSError as error:
        raise LoadgenError(f"{path}: {error.strerror}") from None


def _is_request(row: dict[str, Any]) -> bool:
    return row.get("event") == "request" and {"timestamp", "total_s", "prompt_tokens"} <= row.keys()


def _requests(path: Path, run: int) -> tuple[list[Demand], list[str]]:
    """Of one run: a file holds one after another. A request that was never sent is asked for all the same."""
    runs: dict[tuple[Any, ...], list[Demand]] = {}
    for number, row in enumerate(_rows(path), 1):
        try:
            key = (row["arm"], row["rate"], row["repetition"])
            runs.setdefault(key, []).append(_demand(row))
        except (KeyError, TypeError, ValueError):
            raise LoadgenError(f"{path}: line {number} is no record of a request") from None
    if not 0 <= run < len(runs):
        raise LoadgenError(f"{path}: --run {run}: it has {len(runs)} runs, counted from 0")
    (arm, rate, repetition), demands = list(runs.items())[run]
    named = f"run {run} of {len(runs)} in {path.name}: arm {arm}, rate {rate}, repetition {repetition}"
    return demands, [named, "prompts share no prefixes: the record does not hold them"]


def _demand(row: dict[str, Any]) -> Demand:
    return Demand(
        max(1, int(row["planned_prompt_tokens"])),
        max(1, int(row["planned_output_tokens"])),
        at_s=float(row["intended_s"]),
        tenant=str(row["tenant"]),
        klass=str(row["class"]),
    )


def _gateway_log(path: Path) -> tuple[list[Demand], list[str]]:
    """The end of a request is logged, with how long it took; an answer that never came is as long as was expected."""
    rows = [row for row in _rows(path) if _is_request(row) and row["prompt_tokens"] and row["total_s"] is not None]
    if not rows:
        raise LoadgenError(f"{path}: no request in it that got as far as being planned")
    guessed = sum(row.get("outcome") != "done" for row in rows)
    demands = [_logged(row) for row in rows]
    origin_s = min(one.at_s or 0.0 for one in demands)
    notes = [f"gateway log {path.name}: {len(rows)} requests", "prompts share no prefixes: the log does not hold them"]
    if guessed:
        notes.append(f"{guessed} answers that did not end by themselves are as long as was expected of them")
    shifted = [
        Demand(d.prompt_tokens, d.output_tokens, at_s=(d.at_s or 0.0) - origin_s, tenant=d.tenant, klass=d.klass)
        for d in demands
    ]
    return shifted, notes


def _logged(row: dict[str, Any]) -> Demand:
    came, expected = int(row["completion_tokens"]), round(row.get("estimated_tokens") or 0)
    tokens = came if row.get("outcome") == "done" else max(came, expected)
    ended_s = datetime.fromisoformat(str(row["timestamp"])).timestamp()
    return Demand(
        int(row["prompt_tokens"]),
        max(1, tokens),
        at_s=ended_s - float(row["total_s"]),
        tenant=str(row.get("tenant") or ""),
        klass=str(row.get("class") or ""),
    )


def _scheduled(name: str, demands: list[Demand], wanted: Wanted) -> Schedule:
    if not wanted.time_scale > 0:
        raise LoadgenError(f"--time-scale {wanted.time_scale:g} must be above 0")
    rows = sorted(demands, key=lambda d: d.at_s or 0.0)
    origin_s = rows[0].at_s or 0.0
    times = [((d.at_s or 0.0) - origin_s) / wanted.time_scale for d in rows]
    kept = [
        (at_s, demand)
        for at_s, demand in zip(times, rows, strict=True)
        if wanted.duration_s is None or at_s < wanted.duration_s
    ][: wanted.requests]
    if not kept:
        raise LoadgenError(f"--duration {wanted.duration_s:g} is too short: no request is left")
    requests = tuple(Planned(index, at_s, demand) for index, (at_s, demand) in enumerate(kept))
    return Schedule(requests, kept[-1][0], Arrivals(Kind.REPLAY, time_scale=wanted.time_scale), wanted.seed)


def _workload(words: str, wanted: Wanted) -> Recorded:
    mix = Catalogue().mix([words])
    timed = all(isinstance(part.workload, TraceWorkload) for part in mix.parts) and wanted.rate is None
    if not timed and wanted.rate is None:
        raise LoadgenError(f"{words}: it has no times of its own; say --rate, and --requests or --duration")
    if not timed and wanted.requests is None and wanted.duration_s is None:
        raise LoadgenError("say how much: --requests N or --duration S")
    kind = Kind.REPLAY if timed else Kind.POISSON
    arrivals = Arrivals(kind, rate=1.0 if wanted.rate is None else wanted.rate, time_scale=wanted.time_scale)
    plan = Plan(mix, arrivals, wanted.seed, wanted.requests, wanted.duration_s)
    return Recorded(build(plan), tuple(mix.notes()))
