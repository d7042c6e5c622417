"""The running layout and the best one found, alone and on seeds of their own: a search has few of them, and chose by its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loadgen.failure import InterruptedEarlyError
from loadgen.measure.interval import Interval, paired_difference
from loadgen.plan.candidate import Candidate
from loadgen.plan.crew import INTERRUPTED, Crew
from loadgen.plan.plan import Planned
from loadgen.plan.question import Effort
from loadgen.plan.trial import Task, measure

DUEL = Effort(seeds=6, judged=500, span=1.0, precision=0.02, lead=0.8, tail=0.2, first_seed=500)
#: The first step away from what the search found.
_STEP = 1.06
#: Seeds without which there is no interval.
_LEAST = 2


@dataclass(frozen=True, slots=True)
class Duel:
    """Highest rates at the goal, seed by seed."""

    now: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def now_rate(self) -> float:
        return sum(self.now) / len(self.now)

    @property
    def new_rate(self) -> float:
        return sum(self.new) / len(self.new)

    @property
    def gain(self) -> float:
        """Of the new one, as a share of the rate of the one that runs."""
        return self.new_rate / self.now_rate - 1

    @property
    def gain_95(self) -> Interval:
        lead = paired_difference(self.new, self.now)
        return Interval(lead.low / self.now_rate, lead.high / self.now_rate)


def fought(planned: Planned, jobs: int, budget_s: float | None, effort: Effort = DUEL) -> Duel | None:
    """None where there is nothing to decide, or no time for two seeds. A budget may leave fewer of them than were wanted.

    Raises InterruptedEarlyError.
    """
    now, new = planned.running, planned.winner
    if now is None or now is new or planned.incomplete == INTERRUPTED:
        return None
    question, goal = planned.asked.question, new.goal

    def tasks() -> Iterator[Task]:
        for seed in effort.every_seed:
            for row in (now, new):
                alone = replace(effort, seeds=1, first_seed=seed)
                yield Task(row.candidate, question, alone, (goal,), row.rate, row.bound, step=_STEP)

    found: dict[tuple[Candidate, int], float] = {}
    with Crew(jobs, budget_s) as crew:
        for task, report in crew.map(measure, tasks()):
            found[task.candidate, task.effort.first_seed] = report.rate(goal)
    if crew.stopped == INTERRUPTED:
        raise InterruptedEarlyError("the two layouts were not held against each other: interrupted")
    both = [seed for seed in effort.every_seed if (now.candidate, seed) in found and (new.candidate, seed) in found]
    if len(both) < _LEAST:
        return None
    return Duel(tuple(found[now.candidate, seed] for seed in both), tuple(found[new.candidate, seed] for seed in both))
