"""What runs have shown, one a line, so that an interrupted table goes on where it was."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

#: What decides how arms with the policy, or with parts of it, run; a change of it makes their runs count no more.
_POLICY = ("gateway/policy/roles/*.py", "loadgen/simulate/*.py", "benchmarks/never_worse/ablation.py")


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one run: how many requests were judged, how many were bad (at least, where it was `cut` because these were too many),
    and how many answers were handed over."""

    judged: int
    bad: int
    cut: bool
    handed: int


class Store:
    """In memory, and in a file where there is a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._seen: dict[str, Seen] = {}
        if path is not None and path.exists():
            text = path.read_text()
            if not text.endswith("\n"):  # it was killed as it wrote
                text = text[: text.rfind("\n") + 1]
                path.write_text(text)
            for line in text.splitlines():
                kept = json.loads(line)
                run = kept.pop("run")
                self._seen[run] = Seen(**kept)

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, run: str) -> Seen | None:
        return self._seen.get(run)

    def keep(self, run: str, seen: Seen) -> None:
        """In place of what was kept of that run."""
        self._seen[run] = seen
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"run": run, **asdict(seen)}) + "\n")


def policy_version(root: Path) -> str:
    """A short digest of the policy's source under `root`."""
    digest = sha256()
    for pattern in _POLICY:
        for path in sorted(root.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
