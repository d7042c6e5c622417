"""A gateway's own account of its traffic, one JSON document."""

from collections.abc import Iterator
from pathlib import Path

from loadgen.demand import Demand
from loadgen.workload.observed import Observed
from loadgen.workload.readers.lines import json_rows


def read(path: Path) -> Iterator[Demand]:
    for _, document in json_rows(path):
        yield from Observed.of(document).rows
