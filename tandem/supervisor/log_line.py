"""The last line of a child's log, as far as it tells a person how the start goes."""

import re
from pathlib import Path

from tandem.supervisor.child import tail

#: Part of every start, and nothing to worry about: events for machines, tries to join before the gateway listens, and what
#: libraries of the engine warn of.
_HIDDEN = re.compile(r'\{"event"|tandem\.worker\.join: |^\[[IW]\d{4} ')
_TIME = re.compile(r"^\d{4}-\d\d-\d\d [\d:,.]+ ")


def last_told(log: Path) -> str:
    """Without its time; "" where there is none worth showing."""
    last = next(iter(tail(log, lines=1)), "")
    return "" if _HIDDEN.search(last) else _TIME.sub("", last)
