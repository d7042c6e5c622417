"""The linear program, by certificates of optimality."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.bound.simplex import NoOptimumError, maximise


def test_a_program_solved_by_hand() -> None:
    """max 3x + 2y with x + y ≤ 4, x + 3y ≤ 6, x ≤ 3: x = 3, y = 1."""
    best = maximise(np.array([3.0, 2.0]), np.array([[1.0, 1.0], [1.0, 3.0], [1.0, 0.0]]), np.array([4.0, 6.0, 3.0]))
    assert best.x == pytest.approx([3.0, 1.0])
    assert best.value == pytest.approx(11.0)
    assert best.prices == pytest.approx([2.0, 0.0, 1.0])


def test_nothing_limits() -> None:
    with pytest.raises(NoOptimumError, match="unbounded"):
        maximise(np.array([1.0]), np.array([[-1.0]]), np.array([0.0]))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 40))
def test_every_answer_carries_its_own_proof(seed: int, rows: int, count: int) -> None:
    """Feasible, and with feasible prices of the same value: weak duality leaves no better one."""
    rng = np.random.default_rng(seed)
    a = np.vstack([rng.uniform(-1, 2, (rows, count)), np.ones((1, count))])
    b = np.append(rng.uniform(0, 3, rows) * (rng.uniform(size=rows) < 0.7), 5.0)
    c = rng.uniform(-1, 2, count)
    best = maximise(c, a, b)
    assert (best.x >= 0).all()
    assert (a @ best.x <= b + 1e-7).all()
    assert (best.prices >= -1e-7).all()
    assert (best.prices @ a >= c - 1e-7).all()
    assert best.value == pytest.approx(float(c @ best.x), abs=1e-6)
