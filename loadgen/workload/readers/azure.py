"""Azure Public Dataset, LLM inference traces of 2023 and 2024."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.readers.lines import Row, csv_rows

FIELDS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_FRACTION = re.compile(r"(\.\d{6})\d+")


def read(path: Path) -> Iterator[Demand]:
    """TIMESTAMP, ContextTokens, GeneratedTokens. 2023 stamps have seven decimals, those of 2024 a time zone."""
    for number, fields in csv_rows(path):
        row = Row(path, number, fields)
        yield Demand(row.tokens("ContextTokens"), row.tokens("GeneratedTokens"), at_s=_stamp(row))


def _stamp(row: Row) -> float:
    text = str(row.raw("TIMESTAMP"))
    try:
        stamp = datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    except ValueError:
        raise row.fail(f"TIMESTAMP is {text!r}, not a date and time") from None
    return (stamp.replace(tzinfo=None) - datetime(2020, 1, 1)).total_seconds()
