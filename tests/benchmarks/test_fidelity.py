"""The comparison of a real pair with its simulation: what it counts, and that it can be missed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import fidelity
from benchmarks.comparison import compare, slos
from benchmarks.fidelity import Use, sliced
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.demand import Demand
from loadgen.result import Ending, Result
from loadgen.schedule import Planned, Schedule
from tests.waiting import HANG_S

TOKENS = 11


def answer(index: int, ttft_s: float, tpot_s: float, ending: Ending = Ending.COMPLETED) -> Result:
    return Result(
        index,
        intended_s=float(index),
        sent_s=index + 0.001,
        end_s=index + ttft_s + tpot_s * (TOKENS - 1),
        ending=ending,
        first_s=index + ttft_s,
        output_tokens=TOKENS,
        stages_s=(("prefill", ttft_s / 2),),
    )


def run(slower: float = 1.0, lost: int = 0) -> list[Result]:
    """A hundred requests whose TTFT is spread from 100 to 200 ms, at 10 ms a token."""
    results = [answer(index, (0.1 + index / 1000) * slower, 0.01 * slower) for index in range(100)]
    for index in range(lost):
        results[index] = answer(index, 0.1, 0.01, Ending.FAILED)
    return results


UNLOADED = [answer(index, 0.1, 0.01) for index in range(5)]


def test_equal_runs_hold_and_every_slo_is_a_multiple_of_the_unloaded_medians() -> None:
    policies = slos(UNLOADED)
    assert [policy.describe() for policy in policies.values()] == [
        ["all: ttft:400 tpot:40"],
        ["all: ttft:200 tpot:20"],
        ["all: ttft:125 tpot:12.5"],
    ]
    same = compare(run(), run(), policies)
    assert same.holds
    assert [row.ratio for row in same.rows] == [1.0, 1.0, 1.0]
    assert [one.real for one in same.attainment] == [1.0, 1.0, pytest.approx(0.26, abs=0.01)]
    assert [row.metric for row in same.stages] == ["prefill", "1st to 2nd"]


@pytest.mark.parametrize(
    ("simulated", "why"),
    [
        (lambda: run(slower=1.2), "medians off by 20 %"),
        (lambda: run(slower=1.09), "attainment of the tight SLO"),
        (lambda: run(lost=6), "requests that failed count against attainment"),
        (list, "nothing came"),
    ],
)
def test_a_simulation_that_is_off_misses_the_bar(simulated: Callable[[], list[Result]], why: str) -> None:
    assert not compare(run(), simulated(), slos(UNLOADED)).holds, why


def test_points_and_ratios_are_simulated_against_real() -> None:
    off = compare(run(), run(slower=1.1), slos(UNLOADED))
    assert all(row.ratio == pytest.approx(1.1) for row in off.rows)
    assert off.attainment[-1].points < -5


def test_slices_are_the_same_requests_each_from_zero() -> None:
    requests = tuple(Planned(index, 2.0 * index, Demand(10, 10)) for index in range(10))
    schedule = Schedule(requests, 20.0, Arrivals(Kind.POISSON, rate=0.5), seed=1)
    parts = sliced(schedule, 3)
    assert [planned.index for part in parts for planned in part.requests] == list(range(10))
    assert [part.requests[0].at_s for part in parts] == [0.0, 0.0, 0.0]
    assert parts[1].requests[1].at_s == 2.0
    assert len(sliced(schedule, 1)) == 1


def test_the_work_of_others_is_told_from_our_own() -> None:
    use = Use()
    began_s = time.process_time()
    with use.counted():
        while time.process_time() - began_s < 0.2:
            sum(range(100_000))
    assert use.own_s > 0.15  # the clock of processes goes in ticks of 10 ms
    assert use.own == use.own_s / use.seconds <= len(os.sched_getaffinity(0)) + 0.5
    assert use.others >= 0.0
    assert Use().own == Use().others == 0.0


@pytest.mark.slow
def test_the_imitation_of_an_imitation(tmp_path: Path) -> None:
    """The whole command, with a simulated engine in the place of the real one."""
    command = [sys.executable, "-m", "benchmarks.fidelity", "--engine", "--engine simulated --profile toy", "--json"]
    short = ["--options", "", "--requests", "40", "--rate", "8", "--slices", "2", "--unloaded", "4"]
    done = subprocess.run(
        [*command, *short, "--keep", str(tmp_path / "table.json")],
        cwd=Path(fidelity.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * HANG_S,
    )
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["not_completed"] == [0, 0]
    assert {row["metric"] for row in document["latency"]} == {"ttft", "tpot", "e2el"}
    assert all(row["ratio_p50"] > 0 for row in document["latency"])
    assert (tmp_path / "table.json").exists()
