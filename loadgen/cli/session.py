"""Keeps an experiment going: progress on stderr, Ctrl-C, and the report at the end."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from loadgen.arms.base import Arm
from loadgen.client.runner import Progress as Counts
from loadgen.experiment import Experiment
from loadgen.slo.relative import ReferenceRun
from loadgen.trial import Trial, run_trial, unloaded


@dataclass
class Session:
    """`interrupted` after the first Ctrl-C: the run under way is cut short and no other begins."""

    quiet: bool = False
    interrupted: bool = False
    trials: list[Trial] = field(default_factory=list)
    _arm: Arm | None = None
    _task: "asyncio.Task[None] | None" = None
    _console: Console = field(default_factory=lambda: Console(stderr=True))

    def run(self, main: Callable[["Session"], Awaitable[None]]) -> None:
        """Runs `main`; returns also when it was interrupted, with the trials made so far."""
        uvloop.run(self._guarded(main))

    async def _guarded(self, main: Callable[["Session"], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        try:
            await main(self)
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self.interrupted or self._arm is None:
            self.interrupted = True
            if self._task is not None:
                self._task.cancel()
            return
        self.interrupted = True
        self._console.print("stopping: open requests are cut, what there is will be reported; again to leave at once")
        self._arm.stop()

    def say(self, text: str) -> None:
        if not self.quiet:
            self._console.print(text)

    async def trial(
        self,
        experiment: Experiment,
        arm: Arm,
        rate: float | None = None,
        repetition: int = 0,
        reference: ReferenceRun | None = None,
    ) -> Trial:
        label = (
            f"{arm.name} {'' if rate is None else f'{rate:g}/s '}{f'#{repetition + 1}' if repetition else ''}".strip()
        )
        if not self._console.is_terminal:
            self.say(f"running {label}")  # a log shows no bar
        self._arm = arm
        try:
            with self._bar() as bar:
                watch = _Watch(bar, label)
                trial = await run_trial(experiment, arm, rate, repetition, watch=watch, reference=reference)
                watch.total(len(trial.schedule.requests))
        finally:
            self._arm = None
        self.trials.append(trial)
        return trial

    async def reference(self, experiment: Experiment, arm: Arm, rate: float | None, at_most: int) -> ReferenceRun:
        if not self._console.is_terminal:
            self.say(f"running {arm.name} unloaded")
        self._arm = arm
        try:
            with self._bar() as bar:
                return await unloaded(experiment, arm, rate, at_most, _Watch(bar, f"{arm.name} unloaded"))
        finally:
            self._arm = None

    def _bar(self) -> Progress:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[open]} open"),
            TimeElapsedColumn(),
        )
        return Progress(*columns, console=self._console, disable=self.quiet or not self._console.is_terminal)


class _Watch:
    def __init__(self, bar: Progress, label: str) -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task(label, total=None, open=0)

    def __call__(self, counts: Counts, results: int) -> None:
        self._bar.update(self._task, completed=counts.ended, open=counts.sent - counts.ended)

    def total(self, requests: int) -> None:
        self._bar.update(self._task, total=requests, completed=requests, open=0)
