"""Where commands print what gateways and workers told them."""

from rich.console import Console


def literal(*, highlight: bool = False) -> Console:
    """Names of classes, tenants and workers are anybody's own: `[/b]` in one is three characters, and no end of bold."""
    return Console(highlight=highlight, markup=False, emoji=False)
