"""A session mix as `loadgen workload record` writes it: a head line, then one request a line, in the order of arrival."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadgen.demand import Demand
from loadgen.failure import LoadgenError
from loadgen.workload.readers import plain
from loadgen.workload.readers.lines import Row, json_rows

SCHEMA = "tandem-sessions/1"
_NEEDED = ("session", "turn", "arrival_s")


def read(path: Path) -> Iterator[Demand]:
    """Turns of a session come in their order, from 0 on."""
    turns: dict[str, int] = {}
    precision, promised, number = "", 0, 0
    for number, fields in json_rows(path):
        if number == 1:
            head = Row(path, number, fields)
            precision, promised = head.label("precision"), head.tokens("requests", least=0)
            continue
        row = Row(path, number, {"precision": precision, **fields})
        for name in _NEEDED:
            if not row.has(name):
                raise row.fail(f"{SCHEMA} has {name} in every row")
        one = plain.demand(row)
        if one.session:
            expected = turns.get(one.session, 0)
            if one.turn != expected:
                raise row.fail(f"turn {one.turn} of session {one.session!r} where turn {expected} comes next")
            turns[one.session] = expected + 1
        yield one
    if number - 1 != promised:
        raise LoadgenError(f"{path}: {max(0, number - 1)} requests where its head says {promised}; is the file whole?")


def remarks(head: Mapping[str, Any]) -> list[str]:
    """What the recording said of itself."""
    return [f"recorded: {note}" for note in head.get("notes", ())]
