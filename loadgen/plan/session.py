"""Runs a plan for a person: progress on stderr, the plan on stdout, files in a folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from loadgen.folder import need_writable
from loadgen.plan.crew import Crew
from loadgen.plan.files import write_plan
from loadgen.plan.lines import Lines
from loadgen.plan.plan import Asked, Planned, make_plan
from loadgen.plan.race import Watch
from loadgen.plan.show import show_plan
from loadgen.plan.words import Words, asked
from loadgen.report.terminal import terminal


def run_plan(words: Words, jobs: int, budget_s: float | None, out: Path, quiet: bool) -> Planned:
    """Raises LoadgenError."""
    need_writable(out)
    planned = searched(asked(words), jobs, budget_s, quiet)
    console = terminal(markup=True)
    show_plan(planned, console)
    for line in write_plan(planned, out):
        console.print(line, highlight=False, soft_wrap=True)
    return planned


def searched(question: Asked, jobs: int, budget_s: float | None, quiet: bool) -> Planned:
    """The plan, with its progress shown. Raises LoadgenError."""
    with Crew(jobs, budget_s) as crew, _watching(quiet) as watch:
        return make_plan(question, crew, watch)


@contextmanager
def _watching(quiet: bool) -> Iterator[Watch]:
    errors = Console(stderr=True)
    if not (quiet or errors.is_terminal):
        lines = Lines(lambda line: print(line, file=sys.stderr, flush=True))
        lines("looking at what there is to try")
        with lines.again_and_again():
            yield lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=quiet) as progress:
        yield _Watch(progress)


class _Watch:
    """One bar a stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)
