"""A recalibration as JSON and on the terminal."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from loadgen.recalibrate.components import Components
from loadgen.recalibrate.factors import COMPARED
from loadgen.recalibrate.recalibration import Observed, Recalibrated

SCHEMA = "tandem-recalibration/1"


def observed_document(observed: tuple[Observed, ...]) -> list[dict[str, Any]]:
    return [
        {
            "layout": one.layout,
            "origin": one.origin,
            "complete": one.complete,
            "invalid": list(one.invalid),
            "observed": _components(one.components),
        }
        for one in observed
    ]


def document(found: Recalibrated, written: str, incomplete: str) -> dict[str, Any]:
    """`written`: the file of the new version, "" for none."""
    layouts = observed_document(found.observed)
    for entry, before, after in zip(layouts, found.fitted.before, found.fitted.predicted, strict=True):
        entry |= {"predicted": _components(before), "predicted_by_new_table": _components(after)}
        entry["bottleneck_agrees"] = entry["observed"]["bottleneck"] == entry["predicted"]["bottleneck"]
    return {
        "schema": SCHEMA,
        "table": found.profile,
        "layouts": layouts,
        "factors": asdict(found.fitted.factors),
        "median_error_before": found.fitted.error_before,
        "median_error": found.fitted.error,
        "written": written,
        "incomplete": incomplete,
    }


def _components(components: Components) -> dict[str, Any]:
    return {
        "offered": components.offered,
        "completed": components.completed,
        "good": components.good,
        "latency_ms": {name: spread.as_dict() for name, spread in components.latency_ms.items()},
        "memory": dict(components.memory),
        "missed": dict(components.missed),
        "bottleneck": components.limit.value,
    }


def show(found: Recalibrated, console: Console) -> None:
    for one, before, after in zip(found.observed, found.fitted.before, found.fitted.predicted, strict=True):
        table = Table(box=None, title=one.layout, title_justify="left")
        for name in ("medians in ms", "observed", "predicted", "", "new table", ""):
            table.add_column(name, justify="left" if name == "medians in ms" else "right")
        for part in dict.fromkeys((*COMPARED, "queue", "decode_queue", "decode")):
            values = [each.p50_ms(part) for each in (one.components, before, after)]
            if values[0] is not None:
                table.add_row(part, _ms(values[0]), *_against(values[1], values[0]), *_against(values[2], values[0]))
        for name in ("kv_total_blocks", "kv_peak", "preemptions", "recomputed_tokens"):
            figures = [each.memory.get(name) for each in (one.components, before, after)]
            if figures[0] is not None:
                table.add_row(name, figure(figures[0]), figure(figures[1]), "", figure(figures[2]), "")
        table.add_row("good", *(f"{e.good}/{e.offered}" for e in (one.components, before)), "", f"{after.good}", "")
        console.print(table)
        same = "as predicted" if one.components.limit is before.limit else f"predicted: {before.limit.value}"
        console.print(f"  bottleneck: [bold]{one.components.limit.value}[/bold] ({same})\n")
    factors, fitted = found.fitted.factors, found.fitted
    console.print(
        f"steps with prompts x {factors.prefill:.3f}, decode steps x {factors.decode:.3f}, transfers x {factors.link:.3f}; "
        f"median error {fitted.error_before:.1%} -> {fitted.error:.1%} on this trace",
        highlight=False,
    )


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def figure(value: float | None) -> str:
    """Counts, and shares of them."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == 0 or value >= 100 else f"{value:.4g}"


def _against(value: float | None, observed: float) -> tuple[str, str]:
    return _ms(value), "" if value is None or not observed else f"{value / observed - 1:+.0%}"
