"""The survival table of one answer (R-01, R-07)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.estimate import LEVELS, Estimate
from gateway.policy.estimate.estimate import POINTS
from tests.gateway.policy.estimate.draws import lognormal

tables = st.lists(st.integers(1, 40_000), min_size=1, max_size=60).map(Estimate.of_samples)
ages = st.integers(0, 50_000)


def test_levels_are_few_ascending_thousandths() -> None:
    assert POINTS <= 33
    assert (LEVELS[0], LEVELS[-1]) == (0, 1)
    assert (np.diff(LEVELS) > 0).all()
    assert np.allclose(LEVELS * 1000, np.rint(LEVELS * 1000))


def test_a_table_of_samples_has_their_quantiles_mean_and_survival() -> None:
    lengths = lognormal(500, 1.0, 20_000)
    estimate = Estimate.of_samples(lengths)
    for q in (0.1, 0.5, 0.9, 0.99):
        assert estimate.quantile(q) == pytest.approx(np.quantile(lengths, q), rel=0.02)
    assert estimate.mean == pytest.approx(np.mean(lengths), rel=0.03)
    for tokens in (100, 500, 3000):
        assert estimate.survival(tokens) == pytest.approx(np.mean(np.asarray(lengths) > tokens), abs=0.01)


def test_conditioning_matches_the_samples_that_are_left() -> None:
    lengths = np.asarray(lognormal(500, 1.0, 50_000))
    rest = lengths[lengths > 1000] - 1000
    estimate = Estimate.of_samples(lengths).given(1000)
    for q in (0.25, 0.5, 0.9):
        assert estimate.quantile(q) == pytest.approx(np.quantile(rest, q), rel=0.05)


def test_of_a_heavy_tail_more_is_to_come_the_longer_it_has_run() -> None:
    estimate = Estimate.of_samples(lognormal(500, 1.5, 20_000))
    means = [estimate.given(age).mean for age in (0, 1000, 4000, 8000)]
    assert means == sorted(means)


def test_an_answer_that_outlives_its_table_still_has_something_to_come() -> None:
    rest = Estimate.of_samples([10, 20, 30]).given(400)
    assert rest.quantile(0) >= 1
    assert rest.quantile(1) == 400
    assert Estimate.of_samples([10, 20, 30]).capped(420).given(400).quantile(1) <= 20


def test_a_cap_gathers_the_mass_of_what_is_longer() -> None:
    capped = Estimate.of_samples(range(1, 1001)).capped(600)
    assert capped.quantile(1) == 600
    assert capped.survival(600) == 0
    assert capped.survival(599) == pytest.approx(0.4, abs=0.01)
    assert capped.mean == pytest.approx(np.minimum(np.arange(1, 1001), 600).mean(), rel=0.02)
    assert capped.given(600).mean == 0
    assert capped.capped(10_000).limit_tokens == 600


def test_a_known_length_is_that_length() -> None:
    exact = Estimate.exactly(700)
    assert [exact.quantile(0.01), exact.quantile(0.99), exact.mean] == pytest.approx([700, 700, 700])
    assert (exact.survival(699), exact.survival(700)) == (1, 0)
    assert exact.given(200).quantile(0.5) == 500
    assert exact.given(700).quantile(1) == 0


def test_a_thinking_budget_cuts_the_reasoning_and_leaves_the_answer() -> None:
    estimate = Estimate.exactly(10_000).thinking_capped(2_000, 0.7)
    assert estimate.quantile(0.5) == 5_000
    assert Estimate.exactly(1_000).thinking_capped(2_000, 0.7).quantile(0.5) == 1_000


def test_headroom_stays_within_the_limit() -> None:
    assert Estimate.exactly(100).scaled(2).quantile(1) == 100
    assert Estimate.of_samples([100]).scaled(1.5).quantile(0.5) == 150


@given(tables, ages, st.integers(1, 40_000))
def test_every_operation_keeps_tables_monotone_and_in_range(estimate: Estimate, age: int, cap: int) -> None:
    for each in (estimate, estimate.given(age), estimate.capped(cap), estimate.capped(cap).given(age)):
        assert each.lengths.shape == (POINTS,)
        assert (np.diff(each.lengths) >= 0).all()
        assert (each.lengths >= 0).all()
        limit = each.limit_tokens
        assert limit is None or (each.lengths <= limit).all()
        assert 0 <= each.survival(age) <= 1


@given(tables, ages, ages)
def test_survival_falls_and_quantile_inverts_it(estimate: Estimate, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert estimate.survival(low) >= estimate.survival(high)
    for q in (0.1, 0.5, 0.9):
        assert estimate.survival(estimate.quantile(q)) <= 1 - q + 1e-9
