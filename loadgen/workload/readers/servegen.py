"""ServeGen's generator output: JSONL of {"timestamp": s, "data": {"input_tokens": n, "output_tokens": n}}."""

from collections.abc import Iterator
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.readers.lines import Row, json_rows


def read(path: Path) -> Iterator[Demand]:
    for number, fields in json_rows(path):
        outer = Row(path, number, fields)
        inner = outer.raw("data")
        if not isinstance(inner, dict):
            raise outer.fail("data is not an object")
        row = Row(path, number, inner)
        client = outer.label("client", "client_id")
        at = outer.seconds("timestamp")
        yield Demand(row.tokens("input_tokens"), row.tokens("output_tokens"), at_s=at, tenant=client)
