"""Some traces round arrivals to a coarse grid; replayed as they are, every burst and every TTFT tail is an artefact."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from loadgen.demand import Demand

#: Below this grid step times are taken as real.
_COARSE_S = 0.5


def tick_of(rows: Sequence[Demand]) -> float | None:
    """The grid step when a fifth of the requests or more share their time and all times sit on one coarse grid."""
    counts = Counter(d.at_s for d in rows if d.at_s is not None)
    shared = sum(n for n in counts.values() if n > 1)
    times = sorted(t for t in counts if t is not None)
    if len(times) < 2 or shared < 0.2 * len(rows):
        return None
    step = min(b - a for a, b in pairwise(times))
    off_grid = max(abs((t - times[0]) / step - round((t - times[0]) / step)) for t in times)
    return step if step >= _COARSE_S and off_grid < 0.01 else None


def spread(rows: Sequence[Demand], tick_s: float, *, evenly: bool = False, seed: int = 0) -> list[Demand]:
    """Moves the requests of a tick over the following `tick_s`, at random (or evenly), keeping the order sorted."""
    groups: dict[float, list[Demand]] = {}
    for row in rows:
        groups.setdefault(row.at_s or 0.0, []).append(row)
    rng = np.random.default_rng(seed)
    moved = []
    for at, group in sorted(groups.items(), key=lambda item: item[0]):
        size = len(group)
        offsets = np.arange(size) / size if evenly else np.sort(rng.random(size))
        moved += [replace(d, at_s=at + tick_s * float(o)) for d, o in zip(group, offsets, strict=True)]
    return moved
