"""Bisection on a known cliff, and what counts as holding."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from loadgen.arms.virtual import Simulated, VirtualArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.cli.search import check_reference, search_arm
from loadgen.cli.session import Session
from loadgen.compare import check_shared_limits
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.measure.interval import Interval, wilson
from loadgen.schedule import Schedule
from loadgen.search import Answer, Bisection, Probe, all_or_nothing, pooled, search
from loadgen.slo.presets import preset
from loadgen.workload.family import shipped
from tests.loadgen.build import result


def _probe(rate: float, attainment: float, count: int = 200) -> Probe:
    return Probe(rate, attainment, wilson(round(attainment * count), count))


def _find(cliff: float, *goals: float, **limits: float) -> tuple[list[Probe], list[Answer]]:
    """Attainment falls on a straight line from 1 at the cliff to 0 at twice the cliff."""

    async def measure(rate: float) -> Probe:
        return _probe(rate, max(0.0, min(1.0, 2 - rate / cliff)))

    options = {"start": 1.0, "lowest": 0.01, "highest": 1000.0, "precision": 0.02} | limits
    return asyncio.run(search(measure, goals, **options))  # type: ignore[arg-type]  # keywords of several types in one dict


@pytest.mark.parametrize("cliff", [0.07, 0.9, 3.3, 400.0])
def test_search_finds_the_highest_rate_that_holds(cliff: float) -> None:
    _, (ninety, ninety_nine) = _find(cliff, 0.9, 0.99)
    for answer, truth in ((ninety, 1.1 * cliff), (ninety_nine, 1.01 * cliff)):
        assert answer.low is not None
        assert answer.high is not None
        assert answer.low <= truth * 1.02
        assert answer.high >= truth * 0.98
        assert answer.high / answer.low <= 1.021


def test_goals_share_their_probes() -> None:
    both, _ = _find(3.3, 0.9, 0.99)
    one, _ = _find(3.3, 0.9)
    assert len(both) < 2 * len(one)
    assert len({p.rate for p in both}) == len(both), "no rate is measured twice"


def test_bounds_of_confidence_enclose_the_answer() -> None:
    _, (answer,) = _find(3.3, 0.9)
    assert answer.surely is not None
    assert answer.surely_not is not None
    assert answer.surely <= 1.1 * 3.3 <= answer.surely_not


def test_a_goal_that_always_or_never_holds_is_told() -> None:
    _, (answer,) = _find(1e6, 0.9, highest=50)
    assert (answer.low, answer.high) == (50, None)
    _, (answer,) = _find(1e-6, 0.9, lowest=0.1)
    assert (answer.low, answer.high) == (None, 0.1)


def test_a_growing_queue_does_not_hold_however_good_it_looks() -> None:
    good = Interval(0.95, 1.0)
    assert Probe(1, 1.0, good).holds(0.9)
    assert not Probe(1, 1.0, good, saturated=True).holds(0.9)


def test_noise_does_not_make_the_bracket_cross() -> None:
    bisection = Bisection(0.9, 1, 0.1, 100, probes=[_probe(1, 0.95), _probe(2, 0.85), _probe(4, 0.95)])
    assert bisection.bracket() == (1, 2)


def test_repetitions_are_pooled() -> None:
    probe = pooled(2.0, [[True] * 9 + [False], [True] * 10], [True, False], True)
    assert probe.attainment == pytest.approx(0.95)
    assert not probe.saturated


@pytest.mark.parametrize("limits", [{"start": 0.0}, {"lowest": 5.0}, {"highest": 0.5}])
def test_impossible_limits_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(LoadgenError, match="search: needs"):
        _find(1.0, 0.9, **limits)
    with pytest.raises(LoadgenError, match="shares of offered"):
        _find(1.0, 90)


def test_a_rate_holds_for_whole_runs_when_every_run_held() -> None:
    assert all_or_nothing(2.0, [True, True], [False, False], True).holds(1.0)
    assert not all_or_nothing(2.0, [True, False], [False, False], True).holds(1.0)
    assert not all_or_nothing(2.0, [True, True], [True, True], True).holds(1.0)
    probe = all_or_nothing(2.0, [True], [False], True)
    assert Bisection(1.0, 2, 1, 4, probes=[probe]).answer().surely is None, "one verdict bounds nothing"


@dataclass
class Slowing:
    """Alone every request takes its time; a rate multiplies it by 1 + rate / 10."""

    gpus: float = 2.0
    description: str = "slower with load"
    alone: list[int] = field(default_factory=list)

    def simulate(self, schedule: Schedule) -> Simulated:
        slow = 1.0
        if schedule.arrivals.open_loop:
            slow += schedule.arrivals.rate / 10
        else:
            self.alone.append(schedule.seed)
        results = tuple(
            result(p.index, at=p.at_s, first=slow * p.demand.prompt_tokens / 100, gaps=[0.01 * slow] * 5)
            for p in schedule.requests
        )
        return Simulated(results)


def _experiment(preset_name: str, **more: Any) -> Experiment:
    options: dict[str, Any] = {"count": 60} | more
    return Experiment(shipped()["azure-conv"], Arrivals(Kind.POISSON), preset(preset_name), **options)


@pytest.mark.parametrize(("form", "truth"), [("splitwise", 2.5), ("mooncake-lowest-load", 40.0)])
async def test_whole_runs_are_searched_against_one_unloaded_run(form: str, truth: float) -> None:
    """Splitwise: P50 of TPOT within 1.25x, so 2.5 requests/s. Mooncake: P90 of TPOT within 5x, so 40."""
    layout, session = Slowing(), Session(quiet=True)
    arm = VirtualArm("x", layout)
    async with arm:
        found = await search_arm(session, _experiment(form), arm, [1.0], (1.0, 0.1, 100.0, 0.01), 2, 20)
    (answer,) = found["answers"]
    assert answer["low"] <= truth <= answer["high"]
    assert found["judged"] == "runs"
    assert {p.attainment for p in _probes_of(found)} == {0.0, 1.0}
    assert layout.alone == ([0, 1] if form == "splitwise" else [0]), "each repetition has its own requests"


def _probes_of(found: Mapping[str, Any]) -> list[Probe]:
    return [Probe(p["rate"], p["attainment"], p["interval"]) for p in found["probes"]]


def test_slowdowns_need_the_same_requests_at_every_rate() -> None:
    rates = (1.0, 0.5, 2.0)
    check_reference(_experiment("splitwise"), rates)
    check_reference(_experiment("mooncake-lowest-load", count=None, duration_s=20.0), rates)
    for more in ({"count": None, "duration_s": 20.0}, {"duration_s": 20.0}):
        with pytest.raises(LoadgenError, match="needs the same requests at every rate"):
            check_reference(_experiment("splitwise", **more), rates)
    with pytest.raises(LoadgenError, match="limits that they share"):
        check_shared_limits(_experiment("splitwise"))
