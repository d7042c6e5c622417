"""Cells as rows of Markdown."""

from collections import Counter
from collections.abc import Sequence

from benchmarks.fidelity import QUIET_CORES
from benchmarks.validity.cell import Cell
from benchmarks.validity.exact import LEAST, Exact

HEAD = (
    "| truth | layout | load | requests/s | attainment, truth | simulated | points | missed in truth "
    "| missed in simulation | TTFT, TPOT: simulated over truth | cores used by others |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def row(truth: str, cell: Cell, bar: float) -> str:
    points = f"{cell.points:+.1f}" if cell.within(bar) else f"**{cell.points:+.1f}**"
    cells = [truth, cell.case.layout, cell.case.load, f"{cell.case.rate:g}"]
    cells += [f"{100 * good / max(1, cell.offered):.1f} %" for good in cell.good]
    cells += [points, *(counted(side) for side in cell.missed), ", ".join(f"{one.ratio:.2f}" for one in cell.rows)]
    cells.append(f"{cell.others:.2f}")
    return f"| {' | '.join(cells)} |"


def counted(causes: Counter[str]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items())) or "none"


def explained(truth: str, cell: Cell, bar: float) -> str:
    """One line on a cell outside the limit; empty for others."""
    if cell.within(bar):
        return ""
    where = f"{truth}, {cell.case.layout}, {cell.case.load}: {cell.points:+.1f} points, the limit is {bar:g}"
    return (
        f"{where}. Of {cell.offered} requests, bad in truth alone: {counted(cell.only_truth)}; "
        f"bad in the simulation alone: {counted(cell.only_simulated)}."
    )


def noise(truth: str, cells: Sequence[Cell]) -> str:
    """Whether the machine was quiet meanwhile."""
    most = max((cell.others for cell in cells), default=0.0)
    quiet = "" if most <= QUIET_CORES else ": NOT QUIET, and a live side is slower for it"
    return f"{truth}: others used {most:.2f} cores at most{quiet}."


def exactness(found: Exact) -> str:
    verdict = "equal" if not found.failed else "NOT EQUAL"
    return (
        f"Fast mode and single steps {verdict} in {found.engines} random cases of one engine and {found.fleets} of whole "
        f"fleets; asked for are {LEAST}."
    )
