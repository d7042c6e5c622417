"""Plain CSV or JSONL: our own trace schema, which also carries sessions, prefixes, think times and precision."""

from collections.abc import Iterator
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.readers.lines import Row, csv_rows, json_rows

PROMPT = ("input_tokens", "prompt_tokens", "input_length")
OUTPUT = ("output_tokens", "completion_tokens", "output_length")
ARRIVAL = ("arrival_s", "at_s", "timestamp_s")


def read_csv(path: Path) -> Iterator[Demand]:
    for number, fields in csv_rows(path):
        yield demand(Row(path, number, {k: v for k, v in fields.items() if v != ""}))


def read_jsonl(path: Path) -> Iterator[Demand]:
    for number, fields in json_rows(path):
        yield demand(Row(path, number, fields))


def demand(row: Row) -> Demand:
    """Needs the two lengths; everything else is optional. `client` (ServeGen) is read as the tenant."""
    return Demand(
        row.tokens(*PROMPT),
        row.tokens(*OUTPUT),
        at_s=row.seconds(*ARRIVAL) if row.has(*ARRIVAL) else None,
        prefix=row.ids("hash_ids", "prefix") if row.has("hash_ids", "prefix") else (),
        block_tokens=row.tokens("block_tokens") if row.has("block_tokens") else 512,
        tenant=row.label("tenant", "client"),
        klass=row.label("class"),
        session=row.label("session"),
        turn=row.tokens("turn", least=0) if row.has("turn") else 0,
        think_s=row.seconds("think_s") if row.has("think_s") else 0.0,
        service_s=row.seconds("service_s") if row.has("service_s") else 0.0,
        patience_s=row.seconds("patience_s") if row.has("patience_s") else None,
        leave_after_tokens=row.tokens("leave_after_tokens") if row.has("leave_after_tokens") else None,
        precision=row.label("precision"),
    )
