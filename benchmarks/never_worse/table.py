"""Cells as rows of Markdown."""

from collections.abc import Sequence
from math import exp, log

from benchmarks.never_worse.arms import GPUS, Kind
from benchmarks.never_worse.contest import Cell

HEAD = (
    "| model | traffic | limits, ms | seeds | best colocated | best P/D | routed | fluid | fluid / best static "
    "| of that: routing and chunks | moving KV |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def row(cell: Cell) -> str:
    """Rates in requests/s per GPU. What routing and chunks bring is the better of routed and nothing against the best
    static; the rest of the ratio is what hand-offs add to it, or cost."""
    routed = cell.ratio(Kind.ROUTED, cell.best)
    moved = cell.ratio(Kind.FLUID, Kind.ROUTED)
    limits = f"{cell.aim.ttft_ms:g} / {cell.aim.tpot_ms:g}"
    cells = [cell.model, cell.mix, limits, str(cell.seeds), *(_arm(cell, kind) for kind in Kind)]
    if cell.rate(cell.best):
        cells += [f"**{cell.ratio(Kind.FLUID, cell.best):.3f}**", f"{routed:.3f}", f"{moved:.3f}" if moved else "–"]
    else:
        cells += ["–"] * 3
    return f"| {' | '.join(cells)} |"


def _arm(cell: Cell, kind: Kind) -> str:
    rate = cell.rate(kind)
    if not rate:
        return "none"
    about = "≈ " if kind in cell.screened else ""
    return f"{about}{rate / GPUS:.3g} ({cell.names[kind].replace('fluid', 'F').replace('routed', 'R')})"


def summary(cells: Sequence[Cell]) -> str:
    # the same rate, found from two starts, may differ in the last digits
    ratios = [round(cell.ratio(Kind.FLUID, cell.best), 3) for cell in cells if cell.rate(cell.best)]
    if not ratios:
        return "No static layout held any rate."
    within = sum(ratio >= 0.97 for ratio in ratios)
    ahead = sum(ratio >= 1.0 for ratio in ratios)
    mean = exp(sum(log(max(ratio, 1e-3)) for ratio in ratios) / len(ratios))
    return (
        f"{len(ratios)} cells: fluid reaches 97 % of the best static layout in {within}, 100 % in {ahead}; "
        f"geometric mean {mean:.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}."
    )
