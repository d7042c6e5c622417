"""From which model size on some tensor parallelism beats pure replicas."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadgen.reproduce.map import SUBJECTS, Cell

#: Dense models: their sizes are comparable, that of a mixture of experts is not.
_DENSE = {s.name: s.billions for s in SUBJECTS if s.name not in ("R1", "405B")}
_REPLICAS = "DP8"


@dataclass(frozen=True, slots=True)
class Crossing:
    """`billions` is where pure DP and the best layout with TP take equally long, by interpolation in the logarithm of
    the size. At an end of the range `bound` says so: "below" the smallest model TP wins always, "above" the largest
    that fits one GPU DP still wins."""

    mean: float
    spread: float
    batch: int
    billions: float
    bound: str = ""


def crossings(cells: Sequence[Cell]) -> list[Crossing]:
    """One for each combination of mean, spread and batch."""
    points = dict.fromkeys((c.mean, c.spread, c.batch) for c in cells)
    return [_crossing(*point, [c for c in cells if (c.mean, c.spread, c.batch) == point]) for point in points]


def advantage(cell: Cell) -> float | None:
    """How many times longer pure DP takes than the best layout with TP; None where a replica needs several GPUs."""
    replicas = cell.seconds.get(_REPLICAS)
    others = [s for text, s in cell.seconds.items() if "TP" in text]
    return None if replicas is None or not others else replicas / min(others)


def _crossing(mean: float, spread: float, batch: int, cells: Sequence[Cell]) -> Crossing:
    sizes = sorted(
        (_DENSE[c.subject], gain) for c in cells if c.subject in _DENSE and (gain := advantage(c)) is not None
    )
    if not sizes:
        return Crossing(mean, spread, batch, 0.0, "unknown")
    if sizes[0][1] >= 1:
        return Crossing(mean, spread, batch, sizes[0][0], "below")
    for (small, before), (large, after) in pairwise(sizes):
        if before < 1 <= after:
            share = -math.log(before) / math.log(after / before)
            return Crossing(mean, spread, batch, small * (large / small) ** share)
    return Crossing(mean, spread, batch, sizes[-1][0], "above")
