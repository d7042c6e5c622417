"""Making samples monotone and thin: never beyond the stated error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.cost.tabulate.thin import monotone, thin, thin_grid

positive = st.floats(0.1, 100.0)


@given(st.lists(positive, min_size=2, max_size=40))
def test_monotone_errs_by_no_more_than_half_a_drop(values: list[float]) -> None:
    raw = np.array(values)
    result = monotone(raw)
    assert (np.diff(result) >= -1e-12).all()
    deepest = max((np.maximum.accumulate(raw) / raw).max(), 1.0)
    assert np.exp(np.abs(np.log(result / raw)).max()) <= np.sqrt(deepest) * (1 + 1e-9)


@given(st.lists(st.lists(positive, min_size=5, max_size=5), min_size=2, max_size=8))
def test_a_monotone_surface_rises_both_ways(values: list[list[float]]) -> None:
    result = monotone(np.array(values))
    assert (np.diff(result, axis=0) >= -1e-12).all()
    assert (np.diff(result, axis=1) >= -1e-12).all()


def test_what_rises_already_stays() -> None:
    raw = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert monotone(raw) == pytest.approx(raw)


@given(st.lists(positive, min_size=3, max_size=60), st.floats(0.001, 0.2))
def test_thinning_keeps_the_error(values: list[float], tolerance: float) -> None:
    xs, raw = np.arange(1, len(values) + 1), np.array(values)
    kept = thin(xs, raw, raw, tolerance)
    assert (np.abs(np.interp(xs, xs[kept], raw[kept]) - raw) <= tolerance * raw * (1 + 1e-9)).all()


def test_a_line_needs_its_ends_and_a_step_both_its_sides() -> None:
    xs = np.arange(1, 101)
    line = np.array([3.0 + 2.0 * x for x in range(1, 101)])
    assert thin(xs, line, line, 0.001) == [0, 99]
    step = np.where(xs <= 50, 1.0, 2.0)
    assert thin(xs, step, step, 0.001) == [0, 49, 50, 99]


def test_a_surface_that_is_bilinear_needs_its_corners() -> None:
    rows, columns = np.arange(1, 21), np.arange(1, 31)
    surface = 1.0 + rows[:, None] * columns[None, :]
    assert thin_grid(rows, columns, surface, surface, 0.001) == ([0, 19], [0, 29])
    bent = surface + np.where(rows > 10, 50.0, 0.0)[:, None]
    kept_rows, kept_columns = thin_grid(rows, columns, bent, bent, 0.001)
    assert {9, 10} <= set(kept_rows)
    assert kept_columns == [0, 29]
