"""After the ranking: what the best layouts do in other cases."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.plan.candidate import Candidate
from loadgen.plan.crew import Crew
from loadgen.plan.question import WIDE, Effort, Question
from loadgen.plan.race import Watch
from loadgen.plan.trial import Report, Task, measure
from loadgen.plan.what_if import WhatIf


@dataclass(frozen=True, slots=True)
class Changed:
    """One layout under a what-if: before and after, in requests/s at the goal. `after` is None where it cannot serve."""

    candidate: Candidate
    before: float
    after: float | None


@dataclass(frozen=True, slots=True)
class Answered:
    """Layouts are those that were given."""

    what_if: WhatIf
    changed: tuple[Changed, ...]

    @property
    def winner_before(self) -> Candidate:
        return max(self.changed, key=lambda c: c.before).candidate

    @property
    def winner(self) -> Changed | None:
        able = [c for c in self.changed if c.after]
        return max(able, key=lambda c: c.after or 0.0, default=None)


def answer(
    cases: Sequence[WhatIf],
    question: Question,
    rates: dict[Candidate, float],
    crew: Crew,
    effort: Effort = WIDE,
    watch: Watch = lambda stage, done, total: None,
) -> list[Answered]:
    """`rates` say where to begin. The layouts as they are come first, on the same seeds and effort as every case after
    them. Cases that time did not allow are missing.
    """
    if not cases:
        return []
    cases = [WhatIf("", question, tuple((c, c) for c in rates)), *cases]
    tasks = [
        (number, before, _wide(case.question, after, rates[before], effort))
        for number, case in enumerate(cases)
        for before, after in case.layouts
        if after is not None
    ]
    found: dict[tuple[int, Candidate], float] = {}
    for (number, before, task), report in crew.map(_measured, iter(tasks)):
        found[number, before] = report.rate(min(task.question.goals))
        watch("what-ifs", len(found), len(tasks))
    answers = []
    for number, case in enumerate(cases[1:], 1):
        if all((0, before) in found and (after is None or (number, before) in found) for before, after in case.layouts):
            changed = tuple(
                Changed(before, found[0, before], found.get((number, before))) for before, _ in case.layouts
            )
            answers.append(Answered(case, changed))
    return answers


def _wide(question: Question, candidate: Candidate, start: float, effort: Effort) -> Task:
    return Task(candidate, question, effort, (min(question.goals),), start, start * 4)


def _measured(item: tuple[int, Candidate, Task]) -> Report:
    return measure(item[2])
