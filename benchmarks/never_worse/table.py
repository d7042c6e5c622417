"""Cells as rows of Markdown."""

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev

from benchmarks.never_worse.arms import GPUS, Arm, Kind, short
from benchmarks.never_worse.contest import Cell
from benchmarks.never_worse.mixes import Case

HEAD = (
    "| model | traffic | limits, ms | seeds | best colocated | best P/D | routed | fluid | fluid / best static "
    "| of that: routing, order, steps | moving KV | points at the static rate |\n" + "| --- " * 12 + "|"
)

ARMS_HEAD = (
    "| model | traffic | limits, ms | seeds | length | layout | requests/s per GPU | to the first |\n"
    + "| --- " * 8
    + "|"
)


def row(cell: Cell) -> str:
    """Rates in requests/s per GPU. What routing, order and steps bring is the better of routed and nothing against the best
    static; the rest of the ratio is what hand-offs add to it, or cost. Points: of attainment, at the highest rate that the best
    static layout holds; the mean over the seeds, and its standard error."""
    routed = cell.ratio(Kind.ROUTED, cell.best)
    moved = cell.ratio(Kind.FLUID, Kind.ROUTED)
    limits = cell.aim.limits.replace("/", " / ")
    cells = [cell.model, cell.mix, limits, str(cell.seeds), *(_arm(cell, kind) for kind in Kind)]
    if cell.rates[cell.best]:
        cells += [f"**{cell.ratio(Kind.FLUID, cell.best):.3f}**", f"{routed:.3f}", f"{moved:.3f}" if moved else "–"]
    else:
        cells += ["–"] * 3
    points = cell.points
    error = f" ± {stdev(points) / sqrt(len(points)):.1f}" if len(points) > 1 else ""
    cells.append(f"{fmean(points):+.1f}{error}" if points else "–")
    return f"| {' | '.join(cells)} |"


def arm_row(case: Case, arm: Arm, rate: float, first: float, seeds: int, times: float) -> str:
    """One layout that was asked for by name."""
    to = f"{rate / first:.3f}" if first else "–"
    cells = [case.model.name, case.mix, case.aim.limits.replace("/", " / "), str(seeds), f"{times:g}"]
    return f"| {' | '.join([*cells, short(arm.name), f'{rate / GPUS:.3g}', to])} |"


def _arm(cell: Cell, kind: Kind) -> str:
    rate = cell.rates[kind]
    if not rate:
        return "none"
    about = "≈ " if kind in cell.screened else ""
    return f"{about}{rate / GPUS:.3g} ({short(cell.names[kind])})"


def summary(cells: Sequence[Cell]) -> str:
    # the same rate, found from two starts, may differ in the last digits
    ratios = [round(cell.ratio(Kind.FLUID, cell.best), 3) for cell in cells if cell.rates[cell.best]]
    if not ratios:
        return "No static layout held any rate."
    within = sum(ratio >= 0.97 for ratio in ratios)
    ahead = sum(ratio >= 1.0 for ratio in ratios)
    mean = exp(sum(log(max(ratio, 1e-3)) for ratio in ratios) / len(ratios))
    return (
        f"{len(ratios)} cells: fluid reaches 97 % of the best static layout in {within}, 100 % in {ahead}; "
        f"geometric mean {mean:.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}."
    )
