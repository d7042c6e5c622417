"""Endings that were to be expected, of one answer and of many."""

import numpy as np
import pytest

from gateway.policy.admission import KvBook
from gateway.policy.admission.risk import shape_of, shape_of_one
from gateway.policy.admission.survival import Table, grid
from gateway.policy.estimate.estimate import Estimate
from tests.gateway.policy.admission.families import SIZE, lognormal


def test_an_end_is_expected_alike_whether_one_answer_is_asked_for_or_all() -> None:
    ends = ((lognormal(300, 0.8), 4_000), (lognormal(300, 0.8), 250), (Estimate.exactly(200), 900))
    one, all_of_them = KvBook(1_000, SIZE), KvBook(1_000, SIZE)
    for subject in (one, all_of_them):
        for at, (estimate, limit) in enumerate(ends):
            subject.add(f"r{at}", 10, estimate, limit_tokens=limit)
    for steps in (30, 150, 400, 3_000):
        one.progress(steps)
        all_of_them.progress(steps)
        here = slice(0, len(ends))
        expected = all_of_them.rows.expected_endings(here, all_of_them.now, all_of_them.rows.table(here))
        assert [one.rows.expected_ending(at, one.now) for at in range(len(ends))] == pytest.approx(expected.tolist())


@pytest.mark.parametrize("estimate", [lognormal(300, 0.8), Estimate.exactly(200), lognormal(20, 1.0)])
@pytest.mark.parametrize("limit", [150.0, 201.0, 40_000.0])
@pytest.mark.parametrize("started", [0.0, 48.0, -90.0])
@pytest.mark.parametrize(("spread", "stretch"), [(0.0, 1.0), (0.2, 1.5)])
def test_the_shape_of_one_answer_is_that_of_a_table_with_one_row(
    estimate: Estimate, limit: float, started: float, spread: float, stretch: float
) -> None:
    lengths = np.minimum(estimate.lengths, limit)
    column = (np.array([[value]]) for value in (limit, started, spread, stretch))
    limits, begun, spreads, stretches = column
    tokens, weights = shape_of(Table(lengths[None, :], limits), begun, 0.0, grid(), spreads, stretches)
    one_tokens, one_weights = shape_of_one(lengths, limit, started, grid(), spread, stretch)
    assert one_tokens.tolist() == tokens[0].tolist()
    assert np.abs(one_weights - weights[0]).max() < 1e-6
