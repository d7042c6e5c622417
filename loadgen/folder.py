"""Where results go."""

import os
import tempfile
from pathlib import Path

from loadgen.failure import LoadgenError


def need_writable(folder: Path) -> None:
    """Found before anything is run: what hours have brought would be lost. Makes nothing. Raises LoadgenError."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise LoadgenError(f"cannot write to {folder}: {os.strerror(error.errno or 0)}") from None
