"""A run that ends early must not answer otherwise than the whole run."""

from math import inf

import pytest

from loadgen.measure.verdict import judge_all
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.decision import in_window, run
from loadgen.plan.trial import observe
from loadgen.simulate.simulation import Simulation
from proto.worker import Role
from tests.examples import first
from tests.loadgen.plan.asking import BRIEF, PROFILE, question

COLOCATED = Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=2048)),))


def share_of_the_whole_run(rate: float, seed: int, limits: str) -> float:
    asked = question(goodput=limits)
    schedule, window = asked.schedule(rate, seed, BRIEF)
    results = Simulation(COLOCATED.layout(), schedule).run().results
    good = [j.good for j in judge_all(in_window(results, window), asked.policy)]
    return sum(good) / len(good)


@pytest.mark.parametrize("limits", first(2, ["ttft:300 tpot:30", "ttft:300", "tpot:20", "e2el:500"]))
def test_the_verdict_is_that_of_the_whole_run(limits: str) -> None:
    seen = []
    for rate in (20.0, 75.0, 90.0, 200.0):
        whole = share_of_the_whole_run(rate, 0, limits)
        found = observe(COLOCATED, question(goodput=limits), rate, 0, BRIEF, 0.9)
        assert (found.attainment >= 0.9) == (whole >= 0.9)
        assert found.attainment >= whole  # exact, or the most that it could have come to
        if found.out_of_reach is None:
            assert found.attainment == whole
        seen.append(found.out_of_reach)
    assert None in seen
    assert 0.9 in seen  # both ways were taken


def test_a_lost_run_ends_before_its_time() -> None:
    asked = question()
    schedule, window = asked.schedule(400.0, 0, BRIEF)
    simulation = Simulation(COLOCATED.layout(), schedule)
    ran = run(simulation, asked, window, 0.9)
    assert ran.cut
    assert ran.bad > 0.1 * ran.judged
    assert simulation.clients.left > 0
    assert len(ran.results) <= len(schedule.requests)


def test_several_runs_may_share_what_is_allowed() -> None:
    asked = question()
    schedule, window = asked.schedule(400.0, 0, BRIEF)
    whole = run(Simulation(COLOCATED.layout(), schedule), asked, window, 0.9, allowed=inf)
    assert not whole.cut
    assert whole.bad > 0.1 * whole.judged
    some = run(Simulation(COLOCATED.layout(), schedule), asked, window, 0.9, allowed=3)
    assert some.cut
    assert 3 < some.bad <= whole.bad


def test_a_run_ended_for_one_goal_says_nothing_of_a_lower_one() -> None:
    found = observe(COLOCATED, question(), 400.0, 0, BRIEF, 0.99)
    assert found.says(0.99)
    assert not found.says(0.9)
