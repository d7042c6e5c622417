"""A schedule drawn as it is sent: the same simulation, without the memory."""

import pytest

from loadgen.arrivals.curve import RateCurve
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.failure import LoadgenError
from loadgen.result import Result
from loadgen.schedule import Schedule
from loadgen.simulate import simulate, simulate_stream
from loadgen.stream import Stream
from loadgen.workload.spec import Catalogue
from tests.loadgen.simulate.build import layout

MIX = Catalogue().mix(["fixed isl=60 osl=20"])


def stream(count: int, rate: float = 50.0) -> Stream:
    return Stream(MIX, Arrivals(rate=rate), count, seed=3)


def test_a_stream_and_the_schedule_of_its_requests_give_the_same_results() -> None:
    drawn, taken = stream(200), list[Result]()
    outcome = simulate_stream(layout(colocated=2), drawn, taken.append)
    whole = simulate(layout(colocated=2), Schedule(tuple(drawn.requests), 0.0, drawn.arrivals, 3))
    assert sorted(taken, key=lambda r: r.index) == list(whole.results)
    assert (outcome.results, outcome.workers, outcome.duration_s) == ((), whole.workers, whole.duration_s)


def test_requests_are_drawn_anew_each_time_and_come_at_the_rate() -> None:
    drawn = stream(10_000, rate=4.0)
    first = list(drawn.requests)
    assert first == list(drawn.requests)
    assert [p.index for p in first] == list(range(10_000))
    assert first[-1].at_s == pytest.approx(2500.0, rel=0.05)


def test_along_a_curve_each_hour_has_its_own_rate() -> None:
    curve = RateCurve((1.0, 9.0, 2.0), 500.0)
    drawn = Stream(MIX, Arrivals(), round(curve.mean * 3 * 500 * 2), seed=3, curve=curve)
    at_s = [planned.at_s for planned in drawn.requests]
    assert at_s == sorted(at_s)
    counts = [sum(500.0 * n <= t < 500.0 * (n + 1) for t in at_s) for n in range(5)]
    assert counts == pytest.approx([500, 4500, 1000, 500, 4500], rel=0.15)


def test_a_gap_over_the_end_of_an_hour_goes_on_at_the_next_rate() -> None:
    curve = RateCurve((1.0, 4.0), 10.0)
    assert curve.after(8.0, 1.0) == 9.0
    assert curve.after(8.0, 6.0) == pytest.approx(11.0)
    assert curve.after(0.0, 10 + 40 + 3) == pytest.approx(23.0)
    for rates, window_s in (((), 1.0), ((0.0,), 1.0), ((1.0,), 0.0)):
        with pytest.raises(LoadgenError, match="curve"):
            RateCurve(rates, window_s)


def test_a_stream_takes_only_lone_requests_at_a_steady_rate() -> None:
    with pytest.raises(LoadgenError, match="steady"):
        Stream(MIX, Arrivals(Kind.CLOSED), 10)
    with pytest.raises(LoadgenError, match="sessions"):
        Stream(Catalogue().mix(["chat"]), Arrivals(), 10)
