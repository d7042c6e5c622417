"""Runs of live layouts, each held against the same requests in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.fidelity import Use, say
from benchmarks.validity.cell import Case, Cell, cell
from benchmarks.validity.virtual import Virtual
from loadgen.arms.local import LocalArm
from loadgen.experiment import Experiment
from loadgen.slo.policy import Policy

ALONE = "1 colocated"
LAYOUTS = {"1P1D": "--prefill 1 --decode 1", "2 colocated": "--colocated 2", ALONE: "--colocated 1"}
#: Rates as shares of the knee.
LOADS = {"light": 0.5, "knee": 1.0, "above": 1.25}


@dataclass(frozen=True, slots=True)
class Question:
    """The requests, what is good, and at which rates: all of it known from virtual time alone. `virtual` by layout."""

    virtual: Mapping[str, Virtual]
    experiment: Experiment
    policy: Policy
    cases: tuple[Case, ...]

    @classmethod
    def of(
        cls, virtual: Mapping[str, Virtual], experiment: Experiment, scale: float, names: Sequence[str]
    ) -> "Question":
        policy = virtual[ALONE].limits(LAYOUTS[ALONE], experiment.schedule(), scale)
        cases = []
        for name in names:
            most = virtual[name].knee(LAYOUTS[name], experiment, policy)
            cases += [Case(name, LAYOUTS[name], load, round(most * share, 3)) for load, share in LOADS.items()]
        return cls(virtual, experiment, policy, tuple(cases))

    def of_layout(self, name: str) -> list[Case]:
        return [case for case in self.cases if case.layout == name]


async def cells(question: Question, name: str, engine: str) -> AsyncIterator[Cell]:
    """All rates on one live layout, which is started first and stopped in the end."""
    cases = question.of_layout(name)
    say(f"starting {name}: tandem up {cases[0].words} {engine}")
    async with LocalArm(name, 1, f"{cases[0].words} {engine}") as arm:
        for number, case in enumerate(cases):
            schedule = question.experiment.schedule(case.rate)
            say(f"{name}, {case.load}: {len(schedule.requests)} requests in {schedule.window_s:.0f} s")
            use = Use()
            with use.counted():
                live = await arm.observe(schedule, question.experiment.words_salt(case.rate, number))
            simulated = await asyncio.to_thread(question.virtual[name].results, case.words, schedule)
            yield cell(case, live.results, simulated, question.policy, use.others)
