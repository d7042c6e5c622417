"""Fewest knots that keep a dense sample within an error, after making it monotone."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def monotone(values: Floats, lean: float = 0.5) -> Floats:
    """A non-decreasing array (along every axis), at `lean` 0.5 the one with the smallest greatest relative error.

    Where the source falls as work grows, the result lies between the peak before and the valley after: a drop
    of 6 % costs 3 % either side. A greater `lean` is closer to the valley, for where most steps are after it.
    """
    above, below = values, values
    for axis in range(values.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
    result: Floats = np.maximum(above, 1e-12) ** (1 - lean) * np.maximum(below, 1e-12) ** lean
    return result


def thin(xs: Ints, values: Floats, scale: Floats, tolerance: float) -> list[int]:
    """Indices of knots; linear interpolation between them stays within `tolerance * scale` of every value."""
    keep = {0, len(xs) - 1}
    stack = [(0, len(xs) - 1)]
    while stack:
        low, high = stack.pop()
        if high - low < 2:
            continue
        inner = slice(low + 1, high)
        line = values[low] + (values[high] - values[low]) * (xs[inner] - xs[low]) / (xs[high] - xs[low])
        error = np.abs(line - values[inner]) / scale[inner]
        worst = int(error.argmax())
        if error[worst] > tolerance:
            middle = low + 1 + worst
            keep.add(middle)
            stack += [(low, middle), (middle, high)]
    return sorted(keep)


def thin_grid(
    rows: Ints, columns: Ints, values: Floats, scale: Floats, tolerance: float, most: int = 96
) -> tuple[list[int], list[int]]:
    """The same for a surface: row and column indices, refined where the bilinear error is worst."""
    kept_rows, kept_columns = [0, len(rows) - 1], [0, len(columns) - 1]
    while len(kept_rows) + len(kept_columns) < most:
        by_row = _interpolate(rows, kept_rows, values)
        by_column = _interpolate(columns, kept_columns, values.T).T
        both = _interpolate(columns, kept_columns, by_row.T).T
        error = np.abs(both - values) / scale
        i, j = np.unravel_index(int(error.argmax()), error.shape)
        if error[i, j] <= tolerance:
            break
        row_error, column_error = abs(by_row[i, j] - values[i, j]), abs(by_column[i, j] - values[i, j])
        if int(i) not in kept_rows and (row_error >= column_error or int(j) in kept_columns):
            kept_rows = sorted({*kept_rows, int(i)})
        elif int(j) not in kept_columns:
            kept_columns = sorted({*kept_columns, int(j)})
        else:
            break
    return kept_rows, kept_columns


def _interpolate(xs: Ints, kept: list[int], values: Floats) -> Floats:
    """Values along the first axis as the kept knots give them."""
    knots = xs[kept]
    k = np.clip(np.searchsorted(knots, xs, side="right") - 1, 0, len(kept) - 2)
    share = ((xs - knots[k]) / (knots[k + 1] - knots[k]))[:, None]
    low, high = values[kept][k], values[kept][k + 1]
    result: Floats = low + share * (high - low)
    return result
