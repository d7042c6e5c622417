"""Shapes of candidates that are asked for again and again: requests of one class differ by their prompts alone. Pure."""

from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from gateway.policy.admission.risk import shape_of_one
from gateway.policy.estimate.estimate import Floats

#: A limit that is beyond the longest length by more than this factor is taken for the next power of it.
_FAR = 2.0
#: Spread and stretch are taken to so much.
_FINE = 0.01


def shape_like(
    lengths: NDArray[np.integer], limit: float, started: float, steps: bytes, spread: float, stretch: float
) -> tuple[Floats, Floats]:
    """`shape_of_one` with figures so round that many candidates have the same ones. `steps` are the bytes of a grid, always
    the same ones, so that they are hashed once. Not to be written to."""
    if limit > _FAR * lengths.item(-1):
        limit = _FAR ** ceil(log(limit, _FAR))  # hardly any answer comes so far
    # Never less spread than there is: rounded down it might be none.
    rough = _FINE * ceil(spread / _FINE - 1e-6), _FINE * round(stretch / _FINE)
    return _kept(lengths.tobytes(), lengths.dtype.char, limit, started, steps, *rough)


@lru_cache(maxsize=2048)
def _kept(
    lengths: bytes, kind: str, limit: float, started: float, steps: bytes, spread: float, stretch: float
) -> tuple[Floats, Floats]:
    table = np.frombuffer(lengths, kind).astype(np.float64)
    shape = shape_of_one(table, limit, started, np.frombuffer(steps), spread, stretch)
    for part in shape:
        part.setflags(write=False)
    return shape
