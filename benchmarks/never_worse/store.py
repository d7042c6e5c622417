"""What runs have shown, one a line, so that an interrupted table goes on where it was."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

#: What decides how fluid arms run; a change of it makes their runs count no more.
_POLICY = ("gateway/policy/roles", "loadgen/simulate")


@dataclass(frozen=True, slots=True)
class Seen:
    """Whether the goal was kept, and how many answers were handed over in that run."""

    held: bool
    handed: int


class Store:
    """In memory, and in a file where there is a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._seen: dict[str, Seen] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                self._seen[kept["run"]] = Seen(kept["held"], kept["handed"])

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, run: str, measure: Callable[[], Seen]) -> Seen:
        if run not in self._seen:
            self._seen[run] = seen = measure()
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"run": run, **asdict(seen)}) + "\n")
        return self._seen[run]


def policy_version(root: Path) -> str:
    """A short digest of the policy's source under `root`."""
    digest = sha256()
    for folder in _POLICY:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
