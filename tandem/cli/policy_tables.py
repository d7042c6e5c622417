"""What became of policies: two versions side by side, and what was in force when."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def compared(url: str, document: Mapping[str, Any]) -> RenderableType:
    """`document` is GET /tandem/v1/policy/canary."""
    canary, outcomes = document["canary"], document["outcomes"]
    table = Table(box=None)
    table.add_column("")
    for version in outcomes:
        table.add_column(version + (" (canary)" if version == canary["policy"] else ""), justify="right")
    rows = [dict(_rows(one)) for one in outcomes.values()]
    for name in dict.fromkeys(name for row in rows for name in row):
        table.add_row(name, *[row.get(name, "0") for row in rows])
    head = Text(
        f"{url}: {canary['share']:.1%} of the requests since {canary['since']}; tried: {', '.join(canary['tried'])}"
    )
    rest = [Text(f"not tried: {', '.join(canary['not_tried'])}")] if canary["not_tried"] else []
    return Group(head, *rest, table)


def history_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a change, and its note below: as a column beside the others it would have no room on 80 columns."""
    rows = [
        (str(one["serial"]), one["at"], one["action"] + _share(one), one["version"], f"by {one['by'] or 'anyone'}")
        for one in changes
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, change in zip(rows, changes, strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if change["note"]:
            yield f"{'':{widths[0]}}  {change['note']}"


def _share(change: Mapping[str, Any]) -> str:
    return f" ({change['share']:.1%})" if change.get("share") is not None else ""


def _rows(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("requests", "admitted", "completed"):
        yield name, _of(one[name], one["requests"])
    for reason, count in one["refused"].items():
        yield f"refused: {reason}", _of(count, one["requests"])
    for reason, count in one["failed"].items():
        yield f"failed: {reason}", _of(count, one["requests"])
    yield "client left", _of(one["abandoned"], one["requests"])
    yield "capped answers", str(one["capped"])
    for name, key in (("wait", "queue_s"), ("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        found = one[key]
        shown = "–" if found is None else " / ".join(f"{1e3 * found[level]:.1f}" for level in ("p50", "p90", "p99"))
        yield f"{name} p50 / p90 / p99 (ms)", shown
    for name, key in (("estimated / came", "estimated_to_realised"), ("mean error of estimates", "estimate_error")):
        yield name, "–" if one[key] is None else f"{one[key]:.2f}"


def _of(count: int, requests: int) -> str:
    return f"{count} ({count / requests:.1%})" if requests else str(count)
