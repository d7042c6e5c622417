"""After the ranking: what-ifs, what more hardware would be worth, and what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadgen.measure.interval import Interval, paired_difference
from loadgen.plan.candidate import Candidate
from loadgen.plan.crew import Crew
from loadgen.plan.question import CLOSE, WIDE, Effort, Question
from loadgen.plan.race import find_bound
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
    cases: Sequence[WhatIf], question: Question, rates: dict[Candidate, float], crew: Crew, effort: Effort = WIDE
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


@dataclass(frozen=True, slots=True)
class Worth:
    """What more of something gains the winner: requests/s at the goal, and the same as a share of its rate."""

    what: str
    gain: float
    share: float
    share_95: Interval

    @property
    def shown(self) -> bool:
        return self.share_95.low > 0


def steps_up(candidate: Candidate, question: Question) -> list[tuple[str, Candidate, Question]]:
    """What could be bought. R-61 asks for +20 % of each of four resources, R-66 for memory and links."""
    now = question.changes
    hardware = (
        ("+10 % HBM capacity", replace(now, hbm=now.hbm * 1.1)),
        ("+20 % HBM bandwidth", replace(now, bandwidth=now.bandwidth * 1.2)),
        ("+20 % arithmetic", replace(now, compute=now.compute * 1.2)),
        ("+20 % scale-up link", replace(now, scale_up=now.scale_up * 1.2)),
        ("+20 % scale-out link", replace(now, scale_out=now.scale_out * 1.2)),
        ("2x link for KV", replace(now, kv_link=now.kv_link * 2)),
    )
    made = [(name, candidate, replace(question, changes=changes)) for name, changes in hardware]
    for place, part in enumerate(candidate.parts):
        more = replace(part, workers=part.workers + 1)
        parts = (*candidate.parts[:place], more, *candidate.parts[place + 1 :])
        gpus = part.engine.gpus
        name = f"+{gpus} GPU{'s' if gpus > 1 else ''} ({part.role.value} worker)"
        made.append((name, replace(candidate, parts=parts), question))
    return made


def worth(candidate: Candidate, question: Question, rate: float, crew: Crew, effort: Effort = CLOSE) -> list[Worth]:
    """Against the winner itself on the same seeds and effort. Steps that time did not allow are missing."""
    goal = min(question.goals)
    steps = [("", candidate, question), *steps_up(candidate, question)]

    def tasks() -> Iterator[tuple[str, Task]]:
        for name, one, asked in steps:
            ceiling = find_bound((asked, one, goal)).rate_per_s
            yield name, Task(one, asked, effort, (goal,), rate, ceiling)

    found = {name: report for (name, _), report in crew.map(_measured_step, tasks())}
    if "" not in found:
        return []
    base = found[""].rates(goal)
    mean = sum(base) / len(base)
    made = []
    for name, _, _ in steps[1:]:
        if name in found and mean:
            rates = found[name].rates(goal)
            gain = sum(rates) / len(rates) - mean
            spread = paired_difference(rates, base)
            made.append(Worth(name, gain, gain / mean, Interval(spread.low / mean, spread.high / mean)))
    return made


def _measured_step(item: tuple[str, Task]) -> Report:
    return measure(item[1])
