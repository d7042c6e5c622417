"""What a worker may be called. Its name stands in paths, metrics, tables and logs, and is never quoted there."""

import re

MOST_CHARACTERS = 128
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@=+-]*")


def name_fault(worker_id: str) -> str:
    """Why it may not be called so, or nothing."""
    if len(worker_id) <= MOST_CHARACTERS and _PLAIN.fullmatch(worker_id):
        return ""
    return (
        f"{worker_id[:MOST_CHARACTERS]!r} is no name for a worker: it takes a letter or digit and then letters, digits "
        f"and any of . _ : @ = + -, in all {MOST_CHARACTERS} at most"
    )
