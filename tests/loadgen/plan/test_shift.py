"""How traffic differs from what it was: noise is no change, and what is one is told with its size (R-63)."""

from typing import Any

import numpy as np
import pytest

from loadgen.demand import Demand
from loadgen.plan.shift import Pace, RateShift, length_shifts
from loadgen.workload.observed import Observed
from tests.loadgen.plan.test_watching import observed

RNG, WINDOW_S = np.random.default_rng, 300.0


def arriving(times: Any, window_s: float) -> Observed:
    return Observed(tuple(Demand(10, 10, at_s=float(at_s)) for at_s in times), window_s)


def poisson(rate: float, seed: int) -> Any:
    rng = RNG(seed)
    return rng.uniform(0, WINDOW_S, rng.poisson(rate * WINDOW_S))


def bursty(rate: float, seed: int) -> Any:
    """Gaps of a gamma process of shape 0.25."""
    times = RNG(seed).gamma(0.25, 4 / rate, int(3 * rate * WINDOW_S)).cumsum()
    return times[times < WINDOW_S]


def swelling(rate: float, seed: int) -> Any:
    """Twice as many in every other half minute as in the one between."""
    rng = RNG(seed)
    times = poisson(4 / 3 * rate, seed)
    return times[rng.uniform(size=times.size) < np.where((times + rng.uniform(0, 60)) % 60 < 30, 1.0, 0.5)]


@pytest.mark.parametrize("process", [poisson, bursty, swelling])
@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_noise_is_no_change_of_the_rate_and_a_change_is_one(process: Any, rate: float) -> None:
    def pace(times_rate: float, seed: int) -> Pace:
        return Pace.between(0.0, WINDOW_S, process(times_rate * rate, seed))

    noise = [RateShift.of(pace(1, seed), pace(1, 1000 + seed), 0.25) for seed in range(100)]
    busier = [RateShift.of(pace(1, seed), pace(3, 1000 + seed), 0.25) for seed in range(100)]
    assert sum(one.changed and one.sure for one in noise) <= 1
    assert sum(one.way == 1 and one.sure for one in busier) >= 95


def test_a_change_that_is_sure_but_small_does_not_count() -> None:
    said = RateShift.of(Pace(100_000, 1000.0), Pace(120_000, 1000.0), 0.25)
    assert (said.sure, said.changed, said.way) == (True, False, 0)
    assert str(said) == "no change shown (100 -> 120/s)"
    assert RateShift.of(Pace(125, 1.0), Pace(100, 1.0), 0.25).way == -1  # as far down as up


def test_few_requests_show_little() -> None:
    assert not RateShift.of(Pace(300, 300.0), Pace(6, 3.0), 0.25).sure
    assert RateShift.of(Pace(300, 300.0), Pace(6, 300.0), 0.25).sure


def test_a_pace_of_the_end_has_enough_requests_in_it() -> None:
    whole = arriving(np.arange(1000.0), 1000.0)
    assert Pace.of(whole, 100.0).requests == pytest.approx(100, abs=1)
    late = Pace.of(whole, 100.0, least=300)
    assert late.requests == 300
    assert late.rate_ps == pytest.approx(1.0, rel=0.01)
    assert Pace.of(whole, 100.0, least=5000).seconds == 100.0  # there are not so many
    assert Pace.of(arriving([0.0], 0.0)).dispersion >= 1


def test_the_same_distribution_is_no_shift_and_a_small_one_neither() -> None:
    for seed in range(20):
        assert length_shifts(observed(seed=100 + seed), observed(seed=200 + seed)) == ()
    assert length_shifts(observed(count=5000), observed(output=220.0, count=5000, seed=1)) == ()
    (answers,) = length_shifts(observed(), observed(output=60.0, seed=1))
    assert (answers.what, answers.median_now < 80 < answers.median_before) == ("answers", True)
