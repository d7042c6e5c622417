"""A small linear program with few rows and many columns: max c·x with A x ≤ b, x ≥ 0 and b ≥ 0.

Revised simplex on a dense basis. A solver library would do the same, but at this size (under ten rows, tens of
thousands of columns) it is one matrix product an iteration, and not worth a dependency.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.result import Floats

_TOLERANCE = 1e-9
_MOST = 5000
#: After so many steps the smallest index is taken, which cannot go round in circles.
_PATIENCE = 500


class NoOptimumError(ArithmeticError):
    """Unbounded, or not solved within the iterations allowed."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """`x` by column, and what one more unit of each row's right side is worth."""

    value: float
    x: Floats
    prices: Floats


def maximise(c: Floats, a: Floats, b: Floats) -> Optimum:
    """Raises NoOptimumError."""
    rows, count = a.shape
    whole = np.hstack([a, np.eye(rows)])
    gain = np.concatenate([c, np.zeros(rows)])
    scale = np.maximum(np.abs(whole).max(axis=0), 1e-300)
    whole, gain = whole / scale, gain / scale
    basis = np.arange(count, count + rows)
    for number in range(_MOST):
        inverse = np.linalg.inv(whole[:, basis])
        values = np.maximum(inverse @ b, 0.0)
        prices = gain[basis] @ inverse
        reduced = gain - prices @ whole
        reduced[basis] = 0.0
        better = np.flatnonzero(reduced > _TOLERANCE * max(1.0, float(np.abs(gain).max())))
        if not better.size:
            x = np.zeros(count + rows)
            x[basis] = values
            x /= scale
            return Optimum(float(prices @ b), x[:count], prices)
        entering = int(better[0]) if number > _PATIENCE else int(better[np.argmax(reduced[better])])
        basis[_leaving(inverse @ whole[:, entering], values, basis)] = entering
    raise NoOptimumError(f"no optimum within {_MOST} steps")


def _leaving(direction: Floats, values: Floats, basis: NDArray[np.intp]) -> int:
    """The row that reaches zero first; of equals the one with the smallest column."""
    able = np.flatnonzero(direction > _TOLERANCE)
    if not able.size:
        raise NoOptimumError("unbounded: nothing limits this")
    ratios = values[able] / direction[able]
    first = able[ratios <= ratios.min() + 1e-12]
    return int(first[np.argmin(basis[first])])
