"""The day whose simulation is timed."""

from collections.abc import Callable

import pytest

from benchmarks import simulated_day
from benchmarks.simulated_day import HOURLY, INTERRUPTED, main, requests_in
from loadgen.arrivals.curve import RateCurve
from loadgen.result import Ending, Result
from loadgen.simulate import Layout, Outcome
from loadgen.stream import Stream


def test_a_part_of_the_day_has_its_own_requests() -> None:
    curve = RateCurve((2.0, 6.0), 3600.0)
    assert requests_in(curve, 1) == 7200
    assert requests_in(curve, 1.5) == 7200 + 10_800
    assert requests_in(curve, 4) == 2 * (7200 + 21_600)
    day = RateCurve(HOURLY, 3600.0)
    assert requests_in(day, 24) == pytest.approx(16 * 86_400, rel=0.01)


_SHORT = ["--hours", "0.02", "--gpus", "8", "--steady"]


@pytest.mark.slow
def test_it_says_how_far_it_is_and_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_SHORT) == 0
    said, progress = capsys.readouterr()
    assert "8 GPUs; 1,152 requests over 0.1 h: " in said
    assert "1,152 completed" in said
    assert " at most" in said
    lines = progress.splitlines()
    assert lines[0].startswith("  2%: 0.00 h, 24 of 1,152 requests, ")
    assert lines[-1].startswith("100%: ")


def test_ctrl_c_ends_it_with_the_figures_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(layout: Layout, stream: Stream, took: Callable[[Result], None]) -> Outcome:
        for count, _ in enumerate(stream.requests, 1):
            took(Result(count, 0.0, 0.0, 1800.0, Ending.COMPLETED, output_tokens=10))
            if count == 100:
                raise KeyboardInterrupt
        raise AssertionError

    monkeypatch.setattr(simulated_day, "simulate_stream", cut_short)
    assert main(_SHORT) == INTERRUPTED
    said = capsys.readouterr().out
    assert said.startswith("interrupted: what follows is of 100 of 1,152 requests\n")
    assert "100 requests over 0.5 h: " in said
    assert "100 completed" in said
