"""Which layouts the screen found for each cell: the search among all of them is half of the work, and need not be done again
where static layouts run as they did."""

import json
from collections.abc import Mapping
from pathlib import Path


class Screens:
    """In memory, and in a file where there is a path: one cell a line, with its layouts and the rates that they held, the best of
    each kind before its runner-up."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._found: dict[str, dict[str, float]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                self._found[kept["cell"]] = kept["layouts"]

    def of(self, cell: str) -> tuple[tuple[str, float], ...]:
        """Layout and rate in requests/s; none where the cell was not screened, or nothing held any rate."""
        return tuple(self._found.get(cell, {}).items())

    def keep(self, cell: str, layouts: Mapping[str, float]) -> None:
        self._found[cell] = dict(layouts)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"cell": cell, "layouts": self._found[cell]}) + "\n")
