"""B-70: each arrival process is what its name says."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from loadgen.arrivals.process import Arrivals, Kind, Ramp, arrival_times
from loadgen.failure import LoadgenError

Cdf = Callable[[float], float]


def _times(
    arrivals: Arrivals, *, count: int | None = 5000, duration_s: float | None = None, seed: int = 3
) -> list[float]:
    return arrival_times(arrivals, np.random.default_rng(seed), count=count, duration_s=duration_s)


def _ks(values: list[float], cdf: Cdf) -> float:
    """Kolmogorov-Smirnov statistic times sqrt(n); above 1.63 rejects at 1 %."""
    ordered = sorted(values)
    n = len(ordered)
    worst = max(max((i + 1) / n - cdf(v), cdf(v) - i / n) for i, v in enumerate(ordered))
    return worst * math.sqrt(n)


def _exponential(rate: float) -> Cdf:
    return lambda x: 1 - math.exp(-rate * x)


def _erlang4(rate: float) -> Cdf:
    """Gamma of shape 4 and mean 1 / rate."""
    return lambda x: 1 - math.exp(-4 * rate * x) * sum((4 * rate * x) ** k / math.factorial(k) for k in range(4))


def _half(rate: float) -> Cdf:
    """Gamma of shape 1/2 and mean 1 / rate: a scaled chi-square with one degree of freedom."""
    return lambda x: math.erf(math.sqrt(x * rate / 2))


def test_b70_constant_is_constant() -> None:
    gaps = np.diff(_times(Arrivals(Kind.CONSTANT, rate=7.0)))
    assert np.allclose(gaps, 1 / 7, rtol=1e-9)
    assert _times(Arrivals(Kind.CONSTANT, rate=7.0))[0] == 0


@pytest.mark.parametrize("rate", [0.2, 5.0, 500.0])
def test_b70_poisson_gaps_are_exponential(rate: float) -> None:
    gaps = np.diff(_times(Arrivals(Kind.POISSON, rate=rate))).tolist()
    assert _ks(gaps, _exponential(rate)) < 1.63
    assert _ks(gaps, _erlang4(rate)) > 5, "the test must be able to tell another process"


def test_b70_poisson_times_are_uniform_given_their_number() -> None:
    times = _times(Arrivals(Kind.POISSON, rate=20.0), count=None, duration_s=300)
    assert _ks(times, lambda t: t / 300) < 1.63
    assert abs(len(times) - 6000) < 4 * math.sqrt(6000)


@pytest.mark.parametrize(("burstiness", "cdf"), [(1.0, _exponential(4)), (4.0, _erlang4(4)), (0.5, _half(4))])
def test_b70_gamma_gaps_have_vllms_shape_and_rate(burstiness: float, cdf: Cdf) -> None:
    gaps = np.diff(_times(Arrivals(Kind.GAMMA, rate=4.0, burstiness=burstiness))).tolist()
    assert _ks(gaps, cdf) < 1.63


def test_infinite_burstiness_is_a_fixed_gap() -> None:
    gaps = np.diff(_times(Arrivals(Kind.GAMMA, rate=4.0, burstiness=math.inf)))
    assert np.allclose(gaps, 0.25)


def test_linear_ramp_integrates_to_the_mean_rate_and_stays_poisson() -> None:
    arrivals = Arrivals(Kind.POISSON, rate=30.0, ramp=Ramp.LINEAR, ramp_from=10.0)
    times = _times(arrivals, count=None, duration_s=200)
    assert abs(len(times) - 4000) < 4 * math.sqrt(4000)
    assert _ks(times, lambda t: (10 * t + 0.05 * t * t) / 4000) < 1.63


def test_exponential_ramp_multiplies_the_rate_steadily() -> None:
    arrivals = Arrivals(Kind.CONSTANT, rate=40.0, ramp=Ramp.EXPONENTIAL, ramp_from=10.0)
    times = np.asarray(_times(arrivals, count=None, duration_s=100))
    first, last = ((times < 1).sum(), (times >= 99).sum())
    assert first == pytest.approx(10, abs=1)
    assert last == pytest.approx(40, abs=1)
    assert ((times >= 49.5) & (times < 50.5)).sum() == pytest.approx(20, abs=1)


def test_same_seed_gives_the_same_pattern_at_every_rate() -> None:
    slow, fast = _times(Arrivals(rate=1.0)), _times(Arrivals(rate=10.0))
    assert np.allclose(np.asarray(slow), 10 * np.asarray(fast))
    assert slow != _times(Arrivals(rate=1.0), seed=4)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"rate": 0.0}, "rate 0 is not"),
        ({"rate": -1.0}, "rate -1 is not"),
        ({"rate": math.inf}, "rate inf is not"),
        ({"rate": math.nan}, "rate nan is not"),
        ({"burstiness": 0.0}, "burstiness"),
        ({"kind": Kind.REPLAY, "time_scale": 0.0}, "time scale"),
        ({"kind": Kind.CLOSED, "concurrency": 0}, "concurrency"),
        ({"ramp": Ramp.LINEAR}, "a ramp starts"),
    ],
)
def test_impossible_arrivals_are_refused(arguments: dict[str, float], cause: str) -> None:
    with pytest.raises(LoadgenError, match=cause):
        Arrivals(**arguments)  # type: ignore[arg-type]  # keywords of several types in one dict


def test_unlimited_schedule_is_refused() -> None:
    with pytest.raises(LoadgenError, match="how many"):
        _times(Arrivals(), count=None)
    with pytest.raises(LoadgenError, match="needs a duration"):
        _times(Arrivals(ramp=Ramp.LINEAR, ramp_from=1.0))
