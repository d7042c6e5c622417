"""The day whose simulation is timed."""

import pytest

from benchmarks.simulated_day import HOURLY, requests_in
from loadgen.arrivals.curve import RateCurve


def test_a_part_of_the_day_has_its_own_requests() -> None:
    curve = RateCurve((2.0, 6.0), 3600.0)
    assert requests_in(curve, 1) == 7200
    assert requests_in(curve, 1.5) == 7200 + 10_800
    assert requests_in(curve, 4) == 2 * (7200 + 21_600)
    day = RateCurve(HOURLY, 3600.0)
    assert requests_in(day, 24) == pytest.approx(16 * 86_400, rel=0.01)
