"""Split against colocated pools, as JSON and as a picture."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from loadgen.report.svg import Axis, Line, chart, standalone
from loadgen.reproduce.contest import Contested, Side
from loadgen.reproduce.gates import Gate
from loadgen.reproduce.splits import EXAMPLE

_FIXED = re.compile(r"fixed isl=(\d+) osl=(\d+)")
_TITLE = "Best split over best colocated layout, requests/s per GPU (model)"


def save_splits(
    folder: Path,
    planned: Sequence[Contested],
    shaped: Sequence[Contested],
    sides: Mapping[str, Side],
    gates: Sequence[Gate],
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    data, drawing = folder / "pool-splits.json", folder / "pool-splits.svg"
    data.write_bytes(orjson.dumps(_document(planned, shaped, sides, gates), option=orjson.OPT_INDENT_2))
    drawing.write_text(picture(planned, shaped))
    return [data, drawing]


def picture(planned: Sequence[Contested], shaped: Sequence[Contested]) -> str:
    """The ratio over prompt tokens per answer token: a line for each TPOT limit of the three-GPU contests."""
    lines = []
    limits = dict.fromkeys(found.contest.goodput.partition("tpot:")[2] for found in shaped)
    for limit in limits:
        mine = [found for found in shaped if found.contest.goodput.endswith(f"tpot:{limit}")]
        lines.append(Line(f"14B, TPOT {limit} ms", _points(mine), dots=True))
    lines.append(Line("32B, limits of aiconfigurator's rows", _points(planned), dots=True, dashed=True))
    x = Axis("prompt tokens per answer token", log=True)
    drawing = chart(_TITLE, x, Axis("split / colocated", low=0), lines, [(1.0, "as good")])
    return standalone(_TITLE, drawing, [line.label for line in lines])


def _points(contests: Sequence[Contested]) -> list[tuple[float, float]]:
    """Only those of equal lengths have a place."""
    made = []
    for found in contests:
        match = _FIXED.fullmatch(found.contest.workload)
        if match is not None and found.ratio is not None:
            made.append((int(match[1]) / int(match[2]), found.ratio))
    return sorted(made)


def _document(
    planned: Sequence[Contested], shaped: Sequence[Contested], sides: Mapping[str, Side], gates: Sequence[Gate]
) -> dict[str, Any]:
    return {
        "schema": "loadgen-pool-splits/1",
        "figures": "model figures, nothing here was measured",
        "aiconfigurator": [_contested(each) for each in planned],
        "shape": [_contested(each) for each in shaped],
        "distserve_published": EXAMPLE,
        "alone": {name: asdict(side) for name, side in sides.items()},
        "gates": [asdict(gate) for gate in gates],
    }


def _contested(found: Contested) -> dict[str, Any]:
    return {
        "traffic": found.contest.workload,
        "limits": found.contest.goodput,
        "published": found.contest.published,
        "ratio": found.ratio,
        "ratios": found.ratios,
        "bound_ratio": found.bound_ratio,
        "colocated": asdict(found.together),
        "split": asdict(found.apart),
    }
