"""A prior taken apart, and put together again by what is seen."""

import numpy as np
import pytest

from gateway.policy.estimate.bins import bins_of
from gateway.policy.estimate.parts import Parts
from gateway.policy.estimate.prior import Prior

BINS = bins_of(0.02, 1 << 17)
PRIOR = Prior().mass(BINS)
PARTS = Parts.of(PRIOR, BINS)
NONE = np.zeros(BINS.count)


def weights(tokens: float, count: float) -> np.ndarray:
    found = np.zeros(BINS.count)
    found[BINS.key(tokens)] = count
    return found


def told(ended: np.ndarray, cut: np.ndarray | None) -> np.ndarray:
    return PARTS.mixed(PARTS.given(ended, cut))


def median(mass: np.ndarray) -> int:
    return int(BINS.tokens[mass.cumsum().searchsorted(0.5)])


def test_together_they_are_the_prior() -> None:
    assert np.allclose(PARTS.shares @ PARTS.mass, PRIOR, atol=1e-9)
    assert np.allclose(told(NONE, None), PRIOR, atol=1e-9)


@pytest.mark.parametrize("tokens", [60, 800, 9_000])
def test_answers_alike_leave_the_kinds_near_them(tokens: int) -> None:
    found = told(weights(tokens, 40), None)
    assert found.sum() == pytest.approx(1)
    assert median(found) == pytest.approx(tokens, rel=0.35)
    far = np.abs(np.log(BINS.tokens / tokens)) > np.log(8)
    assert found[far].sum() < 0.08


def test_of_answers_under_way_only_the_shorter_kinds_are_ruled_out() -> None:
    found = told(NONE, weights(2_000, 50))
    assert found[BINS.tokens > 2_000].sum() > 0.85
    assert 4_000 < median(found) < 12_000  # of a kind with the median 4,000 one in six would have ended


def test_some_steps_further_each_time_end_where_many_at_once_do() -> None:
    seen, cut = weights(1_500, 30) + weights(4_000, 40), weights(5_000, 60)
    often = None
    for _ in range(60):
        often = PARTS.given(seen, cut, often)
    assert often is not None
    once = PARTS.given(seen, cut)
    assert np.allclose(PARTS.given(seen, cut, often), often, atol=1e-3)
    assert np.abs(once - often).sum() > np.abs(PARTS.given(seen, cut, once) - often).sum()
