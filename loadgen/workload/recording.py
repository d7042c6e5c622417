"""A schedule as a session-mix trace: everything that is needed to send the same again, and nothing of any target."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.demand import Demand
from loadgen.schedule import Planned
from loadgen.workload.readers.recorded import SCHEMA

#: Members of a row that are left out where they say nothing, with the value that says nothing.
_OPTIONAL = {
    "hash_ids": [],
    "think_s": 0.0,
    "service_s": 0.0,
    "class": "",
    "tenant": "",
    "patience_s": None,
    "leave_after_tokens": None,
    "precision": "",
}


def row_of(demand: Demand, at_s: float | None = None) -> dict[str, Any]:
    """All members, in their order."""
    return {
        "arrival_s": demand.at_s if at_s is None else at_s,
        "session": demand.session,
        "turn": demand.turn,
        "input_tokens": demand.prompt_tokens,
        "output_tokens": demand.output_tokens,
        "think_s": demand.think_s,
        "service_s": demand.service_s,
        "class": demand.klass,
        "tenant": demand.tenant,
        "patience_s": demand.patience_s,
        "leave_after_tokens": demand.leave_after_tokens,
        "precision": demand.precision,
        "block_tokens": demand.block_tokens,
        "hash_ids": list(demand.prefix),
    }


def lines(requests: Sequence[Planned], about: dict[str, Any]) -> Iterator[bytes]:
    """The head, then a line a request. A precision that all share is in the head alone."""
    shared = {planned.demand.precision for planned in requests}
    precision = shared.pop() if len(shared) == 1 else ""
    sessions = len({planned.demand.session for planned in requests if planned.demand.session})
    head = {"schema": SCHEMA, "requests": len(requests), "sessions": sessions, "precision": precision, **about}
    yield orjson.dumps(head) + b"\n"
    for planned in requests:
        row = row_of(planned.demand, planned.at_s)
        if precision:
            row["precision"] = ""
        kept = {name: value for name, value in row.items() if name not in _OPTIONAL or value != _OPTIONAL[name]}
        if "hash_ids" not in kept:
            del kept["block_tokens"]
        yield orjson.dumps(kept) + b"\n"


def write(path: Path, requests: Sequence[Planned], about: dict[str, Any]) -> None:
    """Compressed when the name ends in .gz."""
    text = b"".join(lines(requests, about))
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
