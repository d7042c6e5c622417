"""Reads a trace file of any known format, told or recognised."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.workload.observed import SCHEMA
from loadgen.workload.readers import azure, burstgpt, mooncake, observed, plain, recorded, servegen, sharegpt, ticks
from loadgen.workload.readers.lines import csv_rows, json_rows, opened


class Format(StrEnum):
    AZURE = "azure"
    MOONCAKE = "mooncake"
    BURSTGPT = "burstgpt"
    SERVEGEN = "servegen"
    SHAREGPT = "sharegpt"
    OBSERVED = "observed"
    SESSIONS = "sessions"
    CSV = "csv"
    JSONL = "jsonl"


class Spread(StrEnum):
    RANDOM = "random"
    EVEN = "even"
    NONE = "none"


_READERS: dict[Format, Callable[[Path], Iterator[Demand]]] = {
    Format.AZURE: azure.read,
    Format.MOONCAKE: mooncake.read,
    Format.BURSTGPT: burstgpt.read,
    Format.SERVEGEN: servegen.read,
    Format.OBSERVED: observed.read,
    Format.SESSIONS: recorded.read,
    Format.CSV: plain.read_csv,
    Format.JSONL: plain.read_jsonl,
}


def recognise(path: Path) -> Format:
    """By the header or the first object."""
    with opened(path) as text:
        start = text.read(1)
    if start == "[":
        return Format.SHAREGPT
    if start == "{":
        _, first = next(json_rows(path))
        if first.get("schema") == SCHEMA:
            return Format.OBSERVED
        if first.get("schema") == recorded.SCHEMA:
            return Format.SESSIONS
        if "input_length" in first and "timestamp" in first:
            return Format.MOONCAKE
        return Format.SERVEGEN if "data" in first else Format.JSONL
    header = next((set(row) for _, row in csv_rows(path)), set())
    for form, names in ((Format.AZURE, azure.FIELDS), (Format.BURSTGPT, burstgpt.FIELDS)):
        if header.issuperset(names):
            return form
    if header & set(plain.PROMPT) and header & set(plain.OUTPUT):
        return Format.CSV
    raise LoadgenError(f"{path}: format not recognised; say format=NAME, one of {', '.join(Format)}")


def read(
    path: Path,
    form: Format | None = None,
    *,
    count: sharegpt.CountTokens | None = None,
    spreading: Spread = Spread.RANDOM,
) -> tuple[list[Demand], list[str]]:
    """The requests, times from 0 and sorted, and what a report must say about how they were read."""
    form = form or recognise(path)
    if form is Format.SHAREGPT:
        if count is None:
            raise LoadgenError(f"{path}: ShareGPT has text, not lengths: give --tokenizer PATH/tokenizer.json")
        rows = list(sharegpt.read(path, count))
    else:
        rows = list(_READERS[form](path))
    if not rows:
        raise LoadgenError(f"{path}: no usable request in it")
    notes = [f"trace {path.name}, format {form}, {len(rows)} requests"]
    if form is Format.SESSIONS:  # its times are a schedule's, not those of a coarse clock
        return rows, notes + recorded.remarks(next(json_rows(path))[1])
    return _on_one_clock(rows, notes, spreading), notes


def _on_one_clock(rows: list[Demand], notes: list[str], spreading: Spread) -> list[Demand]:
    if any(d.at_s is None for d in rows):
        return [replace(d, at_s=None) for d in rows]
    origin = min(d.at_s or 0.0 for d in rows)
    rows = sorted((replace(d, at_s=(d.at_s or 0.0) - origin) for d in rows), key=lambda d: d.at_s or 0.0)
    tick = ticks.tick_of(rows)
    if tick is None:
        return rows
    if spreading is Spread.NONE:
        notes.append(f"arrivals sit on ticks of {tick:g} s and were left there: bursts are an artefact")
        return rows
    notes.append(f"arrivals sat on ticks of {tick:g} s; each tick's requests were spread over it ({spreading})")
    return ticks.spread(rows, tick, evenly=spreading is Spread.EVEN)
