"""Endings that were to be expected, of one answer and of many."""

import pytest

from gateway.policy.admission import KvBook
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
