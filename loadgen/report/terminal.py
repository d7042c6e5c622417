"""What tables are printed on."""

import os

from rich.console import Console

#: Of tables, where nobody sets a width.
_WIDTH = 150


def terminal(*, markup: bool = False) -> Console:
    """As wide as the terminal is, or as COLUMNS says; for a pipe or a file, wide enough for the tables.

    Without `markup` names are shown as they are: of classes, tenants, arms and folders they are anybody's, and a `[/b]` in one
    would end the command after its run.
    """
    console = Console(highlight=False, markup=markup, emoji=markup)
    told = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if told else Console(highlight=False, markup=markup, emoji=markup, width=_WIDTH)
