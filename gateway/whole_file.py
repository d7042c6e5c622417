"""Files that are replaced as a whole."""

import os
from pathlib import Path


def write_whole(file: Path, data: bytes) -> None:
    """A crash leaves the file of before or the new one, never a part of it. Raises OSError.

    What is being written has a name of its own beside each file: others may keep `x.0` and `x.1` in one folder.
    """
    scratch = file.with_name(f"{file.name}.tmp")
    file.parent.mkdir(parents=True, exist_ok=True)
    with scratch.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(file)
