"""Which layouts of a race are looked at."""

from collections.abc import Callable, Iterator
from typing import Any

from loadgen.bound import Bound, Resource
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.crew import Crew
from loadgen.plan.race import Race, Stage, find_bounds
from loadgen.plan.trial import Highest, Report, Task
from proto.worker import Role
from tests.loadgen.plan.asking import COLOCATED, PROFILE, QUICK, question

OTHER = Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=1024)),))
SMALL = Candidate((Part(Role.BOTH, 1, Engine(PROFILE, tp=2, tokens=1024)),))


class Told(Crew):
    """Every layout can be offered so much work, and holds so much in a simulation."""

    def __init__(self, served: dict[Candidate, float], holds: dict[Candidate, float]) -> None:
        super().__init__(1)
        self._served, self._holds = served, holds

    def map(self, function: Callable[[Any], Any], feed: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        for item in feed:
            if function is find_bounds:
                yield item, (Bound(100.0, Resource.KV, 0), self._served[item[1]])
            else:
                yield item, self._measured(item)

    def _measured(self, task: Task) -> Report:
        rate = self._holds[task.candidate]
        if rate < task.floor:
            return Report(task, (), 1, 1, given_up=True)
        return Report(task, (Highest(0.9, 0, rate, rate * 1.1, None),), 1, 1)


def race(served: dict[Candidate, float], holds: dict[Candidate, float]) -> dict[Candidate, Stage]:
    one = Race(question(), Told(served, holds), QUICK)
    return {standing.candidate: standing.stage for standing in one.run(list(served))}


def test_a_limit_that_simulations_go_above_rules_nobody_out_by_its_own_figure() -> None:
    """Of long answers a run sees too few to be in steady state. The first layout held more than could be served for ever,
    and all others, which could not be served that much either, were never looked at."""
    found = race({COLOCATED: 10.0, OTHER: 10.0, SMALL: 4.0}, {COLOCATED: 15.0, OTHER: 16.0, SMALL: 9.0})
    assert found == {
        COLOCATED: Stage.FINAL,
        OTHER: Stage.FINAL,
        SMALL: Stage.BOUND,
    }  # 1.5 times 4 is too little for anybody


def test_where_simulations_stay_below_the_limit_it_is_one() -> None:
    found = race({COLOCATED: 20.0, OTHER: 11.0, SMALL: 20.0}, {COLOCATED: 15.0, OTHER: 14.0, SMALL: 11.0})
    assert found == {COLOCATED: Stage.FINAL, OTHER: Stage.BOUND, SMALL: Stage.FLOOR}
