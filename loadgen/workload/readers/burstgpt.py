"""BurstGPT: CSV with the model as class and, in later releases, sessions."""

from collections.abc import Iterator
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.readers.lines import Row, csv_rows

FIELDS = ("Timestamp", "Request tokens", "Response tokens")


def read(path: Path) -> Iterator[Demand]:
    """Rows without response tokens were failures in the source; they are left out, and the caller says how many."""
    for number, fields in csv_rows(path):
        row = Row(path, number, fields)
        output = row.tokens("Response tokens", least=0)
        prompt = row.tokens("Request tokens", least=0)
        at = row.seconds("Timestamp")
        if output and prompt:
            yield Demand(prompt, output, at_s=at, klass=row.label("Model"))
