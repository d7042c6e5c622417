"""Pieces of HTML, and how figures are written."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Run = Mapping[str, Any]


def section(title: str, *parts: str) -> str:
    inside = "\n".join(p for p in parts if p)
    return f"<section><h2>{escape(title)}</h2>\n{inside}\n</section>" if inside else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Scrolls sideways on a phone. The first column holds names."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>"
        + "".join(f"<{'th' if i == 0 else 'td'}>{escape(c)}</{'th' if i == 0 else 'td'}>" for i, c in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "–"
    return f"{value:,.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"


def interval(bounds: Mapping[str, float | None], digits: int) -> str:
    """Of a difference; unbounded ends are unknown."""
    if bounds["low"] is None or bounds["high"] is None:
        return "unknown"
    return f"{bounds['low']:+.{digits}f} to {bounds['high']:+.{digits}f}"


def name_of(run: Run) -> str:
    rate = "" if run["rate"] is None else f" {run['rate']:g}/s"
    return f"{run['arm']}{rate}{' #' + str(run['repetition'] + 1) if run['repetition'] else ''}"
