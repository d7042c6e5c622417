"""What tables are printed on."""

import os

from rich.console import Console

#: Of tables, where nobody sets a width.
_WIDTH = 150


def terminal() -> Console:
    """As wide as the terminal is, or as COLUMNS says; for a pipe or a file, wide enough for the tables."""
    console = Console(highlight=False)
    told = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if told else Console(highlight=False, width=_WIDTH)
