"""Versions of a cost table on disk. A version is written once; what there is, stays."""

import os
import re
from contextlib import suppress
from pathlib import Path

from engine.simulated.cost.request import parse_request
from engine.simulated.cost.table import Table, write_table

_NAME = re.compile(r"(?P<stem>.+?)(?:\.v(?P<version>\d+))?(?P<suffix>\.json(?:\.gz)?)")


def place_of(profile: str, folder: Path) -> tuple[Path, str]:
    """The folder of a profile's versions and their common name: beside a file, in `folder` for a built-in table."""
    request = parse_request(profile)
    if request.file is not None:
        return request.file.parent, request.file.name
    return folder, f"{request.name.rpartition('/')[2]}.json.gz"


def next_version(folder: Path, name: str) -> tuple[int, Path]:
    """One above the highest there is; a table without a number is version 1."""
    stem, suffix = _parts(name)
    taken = [1]
    for path in folder.glob("*") if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is not None and match["stem"] == stem:
            taken.append(int(match["version"] or 1))
    version = max(taken) + 1
    return version, folder / f"{stem}.v{version}{suffix}"


def write_version(table: Table, path: Path) -> None:
    """Whole or not at all. Raises FileExistsError where somebody else was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{os.getpid()}-{path.name}"
    try:
        write_table(table, draft)
        os.link(draft, path)  # fails where the name is taken; a rename would not
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _parts(name: str) -> tuple[str, str]:
    match = _NAME.fullmatch(name)
    return (match["stem"], match["suffix"]) if match is not None else (name, ".json")
