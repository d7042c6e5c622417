"""What the supervisor has to tell, and the plain way of telling it: one line an event."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from tandem.supervisor.child import Death
from tandem.supervisor.log_line import last_told
from tandem.supervisor.plan import Plan

#: A start that takes longer says every so often that it goes on, and with what.
STILL_S = 10.0
#: Characters of what it says of it; once, until there is news.
_DETAIL = 120
#: The state of a child that no gateway knows yet.
STARTING = "starting"


class Reporter(Protocol):
    def begin(self, plan: Plan) -> None: ...

    def started(self, name: str, pid: int) -> None: ...

    def state(self, name: str, state: str, detail: str) -> None:
        """Called at every poll; only changes are worth a line."""
        ...

    def ready(self, lines: Sequence[str]) -> None: ...

    def died(self, death: Death, log: str, restart_in_s: float | None) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None:
        """No more progress; errors and good-byes go to `note`."""
        ...


class PlainReporter:
    """For logs, pipes and machines: time, child, event."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._clock = clock
        self._began_s = clock()
        self._states: dict[str, str] = {}
        self._told_s: dict[str, float] = {}
        self._details: dict[str, str] = {}
        self._logs: dict[str, Path] = {}

    def begin(self, plan: Plan) -> None:
        self._began_s = self._clock()
        self._logs = {child.name: child.log for child in plan.children}
        names = ", ".join(child.name for child in plan.children)
        self.note(f"starting {names} ({plan.mode})")
        self.note(f"logs are in {plan.run_dir}")

    def started(self, name: str, pid: int) -> None:
        self._states[name] = STARTING
        self._line(name, f"started, pid {pid}")

    def state(self, name: str, state: str, detail: str) -> None:
        if self._states.get(name) != state:
            self._states[name] = state
            self._line(name, state)
        elif state != "ready" and self._clock() - self._told_s.get(name, self._began_s) >= STILL_S:
            at = detail or (last_told(self._logs[name]) if name in self._logs else "")
            news = "" if at == self._details.get(name) else at[:_DETAIL]
            self._details[name] = at
            self._line(name, f"still {state}{f': {news}' if news else ''}")

    def ready(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def died(self, death: Death, log: str, restart_in_s: float | None) -> None:
        self._states.pop(death.name, None)
        self._line(death.name, f"died after {death.ran_s:.0f} s: {death.cause}; the end of {log}:")
        for line in death.tail:
            self.console.print(f"    {line}", highlight=False, markup=False, soft_wrap=True, style="dim")
        if restart_in_s is not None:
            self._line(death.name, f"starting again in {restart_in_s:.0f} s")

    def note(self, text: str) -> None:
        self.console.print(f"[{self._elapsed():6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None:
        pass

    def _line(self, name: str, text: str) -> None:
        self._told_s[name] = self._clock()
        self.note(f"{name:<12} {text}")

    def _elapsed(self) -> float:
        return self._clock() - self._began_s
