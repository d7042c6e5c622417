"""Sketches that forget, and distributions made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.estimate.bins import bins_of
from gateway.policy.estimate.posterior import posterior
from gateway.policy.estimate.prior import Prior
from gateway.policy.estimate.sketch import Sketch
from tests.gateway.policy.estimate.draws import lognormal

BINS = bins_of(0.02, 1 << 17)
FLAT = np.full(BINS.count, 1 / BINS.count)


@given(st.integers(1, 1 << 17))
def test_a_bin_stands_for_its_lengths_within_the_accuracy(tokens: int) -> None:
    assert abs(int(BINS.tokens[BINS.key(tokens)]) - tokens) <= 0.02 * tokens + 0.5


def test_an_observation_is_worth_half_after_each_half_life() -> None:
    sketch = Sketch(BINS, half_life_observations=100, half_life_s=60, now_s=0)
    sketch.add(5, False, 0)
    assert sketch.effective(0) == pytest.approx(1)
    assert sketch.effective(60) == pytest.approx(0.5)
    assert sketch.effective(180) == pytest.approx(0.125)
    for _ in range(2000):
        sketch.add(7, False, 180)
    assert sketch.effective(180) == pytest.approx(1 / (1 - 2**-0.01), rel=0.01)
    assert sketch.weights(180)[0][5] < 1e-5


def test_ages_without_end_do_not_overflow() -> None:
    sketch = Sketch(BINS, 1, 1, 0)
    for step in range(100):
        sketch.add(step % 50, step % 3 == 0, step * 5000.0)
    assert 1 <= sketch.effective(99 * 5000.0) < 2.1
    assert sketch.effective(1e9) == 0


def test_shrinking_keeps_the_shape() -> None:
    sketch = Sketch(BINS, 1e9, 1e9, 0)
    for key in (3, 3, 9, 9, 9, 9):
        sketch.add(key, key == 9, 0)
    sketch.shrink_to(3, 0, anew=True)
    ended, cut = sketch.weights(0)
    assert cut is not None
    assert [ended[3], cut[9]] == pytest.approx([1, 2])


def test_a_saved_sketch_comes_back() -> None:
    sketch = Sketch(BINS, 100, 60, 0)
    for key, at_s in ((0, 0.0), (3, 1.0), (200, 2.0)):
        sketch.add(key, key == 3, at_s)
    other = Sketch(BINS, 100, 60, 1000)
    other.load(sketch.document(10))
    assert np.allclose(other.weights(1000)[0], sketch.weights(10)[0])
    assert other.effective(1000) == pytest.approx(sketch.effective(10))


@given(st.integers(0, 1 << 30), st.booleans())
def test_a_posterior_is_a_distribution(seed: int, cutting: bool) -> None:
    rng = np.random.default_rng(seed)
    ended = rng.exponential(1, BINS.count) * (rng.random(BINS.count) < 0.1)
    cut = rng.exponential(1, BINS.count) * (rng.random(BINS.count) < 0.1) if cutting else None
    mass = posterior(Prior().mass(BINS), 20, ended, cut)
    assert mass.sum() == pytest.approx(1)
    assert (mass >= -1e-12).all()


def test_without_cut_answers_it_is_the_mixture_and_both_ways_agree() -> None:
    ended = np.zeros(BINS.count)
    ended[10] = 60
    mixture = posterior(FLAT, 20, ended, None)
    assert mixture[10] == pytest.approx((60 + 20 / BINS.count) / 80)
    assert np.allclose(posterior(FLAT, 20, ended, np.zeros(BINS.count)), mixture)


def test_it_is_kaplan_and_meiers_estimate_without_a_parent() -> None:
    # Deaths at bins 1 and 3 of four at risk, one leaves at 2: S = 3/4, then 3/4 · 1/2, then 0.
    ended, cut = np.zeros(BINS.count), np.zeros(BINS.count)
    ended[[1, 3, 5]] = 1
    cut[2] = 1
    mass = posterior(FLAT, 1e-9, ended, cut)
    assert mass[[1, 3, 5]] == pytest.approx([1 / 4, 3 / 8, 3 / 8], abs=1e-6)


def test_beyond_the_longest_whole_answer_the_tail_is_the_parents() -> None:
    parent = Prior().mass(BINS)
    cut = np.zeros(BINS.count)
    at = BINS.key(1000)
    cut[at] = 10_000
    mass = posterior(parent, 1, np.zeros(BINS.count), cut)
    beyond = slice(at + 1, None)
    assert mass[: at + 1].sum() < 0.001
    assert np.allclose(mass[beyond] / mass[beyond].sum(), parent[beyond] / parent[beyond].sum(), rtol=1e-3)


def test_cut_answers_do_not_shorten_the_estimate() -> None:
    """Half of all answers are cut at a random time; the median stays that of whole answers (Kaplan–Meier)."""
    truths, cuts = lognormal(500, 1, 20_000), lognormal(500, 1, 20_000, seed=1)
    ended, cut = np.zeros(BINS.count), np.zeros(BINS.count)
    for truth, end in zip(truths, cuts, strict=True):
        (ended if truth <= end else cut)[BINS.key(min(truth, end))] += 1
    reached = posterior(Prior().mass(BINS), 20, ended, cut).cumsum()
    for q in (0.5, 0.9):
        found = BINS.tokens[reached.searchsorted(q)]
        assert found == pytest.approx(np.quantile(truths, q), rel=0.06)
    naive = BINS.tokens[posterior(Prior().mass(BINS), 20, ended, None).cumsum().searchsorted(0.5)]
    assert naive < 0.8 * np.median(truths)


def test_a_prior_has_its_quantiles() -> None:
    reached = Prior(((0, 10), (0.5, 100), (1, 1000))).mass(BINS).cumsum()
    assert BINS.tokens[reached.searchsorted(0.5)] == pytest.approx(100, rel=0.03)
    assert reached[BINS.key(9)] == 0
    assert reached[-1] == pytest.approx(1)


@pytest.mark.parametrize("points", [((0, 10),), ((0, 10), (1, 5)), ((0.1, 1), (1, 5)), ((0, 0), (1, 5))])
def test_a_prior_that_is_no_distribution_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="prior"):
        Prior(points)
