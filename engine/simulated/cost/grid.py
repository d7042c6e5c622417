"""Piecewise-linear curves and surfaces over tabulated knots, in plain Python because steps ask them one by one."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, sqrt


class Curve:
    """A line through knots: constant before the first, prolonged after the last. Monotone where its knots are."""

    __slots__ = ("_last", "slopes", "xs", "ys")

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        if len(xs) != len(ys) or not xs:
            raise ValueError(f"a curve needs as many values as knots and at least one: {len(xs)} and {len(ys)}")
        if any(after <= before for before, after in pairwise(xs)):
            raise ValueError("knots must rise")
        self.xs = tuple(map(float, xs))
        self.ys = tuple(map(float, ys))
        slopes = [(self.ys[k + 1] - self.ys[k]) / (self.xs[k + 1] - self.xs[k]) for k in range(len(xs) - 1)]
        self.slopes = (*slopes, slopes[-1] if slopes else 0.0)
        self._last = len(xs) - 1

    def at(self, x: float) -> float:
        k = bisect_right(self.xs, x) - 1
        if k < 0:
            return self.ys[0]
        return self.ys[k] + (x - self.xs[k]) * self.slopes[k]

    def run(self, start: float, stride: float, count: int, base: float = 0.0) -> float:
        """Sum of base + at(start + k * stride) for k in range(count), by arithmetic series between knots."""
        xs, last, total, x, left = self.xs, self._last, base * count, start, count
        k = bisect_right(xs, x) - 1
        while left > 0:
            terms, value, slope = left, self.ys[k] if k >= 0 else self.ys[0], 0.0
            if k >= 0:
                slope = self.slopes[k]
                value += (x - xs[k]) * slope
            if k < last:
                inside = ceil((xs[k + 1] - x) / stride)
                if inside < left:
                    terms = inside if inside > 1 else 1
            total += terms * value + slope * stride * (terms * (terms - 1) / 2)
            left -= terms
            x += terms * stride
            while k < last and xs[k + 1] <= x:
                k += 1
        return total

    def run_within(self, start: float, stride: float, budget: float, base: float, most: int) -> int:
        """The largest count up to `most` with run(start, stride, count, base) <= budget."""
        xs, last, done, x, left = self.xs, self._last, 0, start, budget
        k = bisect_right(xs, x) - 1
        while done < most:
            terms, value, slope = most - done, self.ys[k] if k >= 0 else self.ys[0], 0.0
            if k >= 0:
                slope = self.slopes[k]
                value += (x - xs[k]) * slope
            if k < last:
                inside = ceil((xs[k + 1] - x) / stride)
                if inside < terms:
                    terms = inside if inside > 1 else 1
            first, rise = base + value, slope * stride
            cost = terms * first + rise * (terms * (terms - 1) / 2)
            if cost > left:
                return done + _terms_within(first, rise, left, terms)
            done, x, left = done + terms, x + terms * stride, left - cost
            while k < last and xs[k + 1] <= x:
                k += 1
        return most


def convex_below(curve: Curve) -> Curve:
    """The highest convex curve nowhere above `curve`: its slope never falls."""
    hull: list[tuple[float, float]] = []
    for x, y in zip(curve.xs, curve.ys, strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return Curve([x for x, _ in hull], [y for _, y in hull])


def _terms_within(first: float, rise: float, budget: float, most: int) -> int:
    """How many terms of first, first + rise, first + 2 rise ... fit the budget."""

    def cost(terms: int) -> float:
        return terms * first + rise * (terms * (terms - 1) / 2)

    if rise <= 0.0:
        guess = int(budget / first) if first > 0.0 else most
    else:
        linear = first - rise / 2
        guess = int((sqrt(linear * linear + 2 * rise * budget) - linear) / rise)
    guess = min(max(guess, 0), most)
    while guess > 0 and cost(guess) > budget:
        guess -= 1
    while guess < most and cost(guess + 1) <= budget:
        guess += 1
    return guess


class Surface:
    """Bilinear between rows and columns; clamped before the first of each, prolonged after the last."""

    __slots__ = ("_columns", "_rows", "_values")

    def __init__(self, rows: Sequence[float], columns: Sequence[float], values: Sequence[Sequence[float]]) -> None:
        if len(values) != len(rows):
            raise ValueError(f"{len(values)} rows of values for {len(rows)} rows")
        self._rows = tuple(map(float, rows))
        self._columns = tuple(map(float, columns))
        self._values = tuple(Curve(columns, line) for line in values)

    def row(self, r: float) -> tuple[float, ...]:
        """The values at row `r` for every column."""
        rows = self._rows
        k = min(max(bisect_right(rows, r) - 1, 0), max(len(rows) - 2, 0))
        low = self._values[k].ys
        if len(rows) == 1 or r <= rows[0]:
            return low
        share = (r - rows[k]) / (rows[k + 1] - rows[k])
        return tuple(a + share * (b - a) for a, b in zip(low, self._values[k + 1].ys, strict=True))

    def curve(self, r: float, scale: float = 1.0) -> Curve:
        """Row `r` as a curve over its columns times `scale`."""
        return Curve([column * scale for column in self._columns], self.row(r))

    def at(self, r: float, c: float) -> float:
        rows = self._rows
        k = bisect_right(rows, r) - 1
        if k < 0:
            return self._values[0].at(c)
        if k >= len(rows) - 1:
            if len(rows) == 1:
                return self._values[0].at(c)
            k = len(rows) - 2
        low = self._values[k].at(c)
        return low + (self._values[k + 1].at(c) - low) * (r - rows[k]) / (rows[k + 1] - rows[k])
