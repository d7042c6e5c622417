"""What the supervisor has to tell, and the plain way of telling it: one line an event."""

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from tandem.supervisor.child import Death
from tandem.supervisor.plan import Plan


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

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()
        self._states: dict[str, str] = {}

    def begin(self, plan: Plan) -> None:
        self._began_s = time.monotonic()
        names = ", ".join(child.name for child in plan.children)
        self.note(f"starting {names} ({plan.mode})")
        self.note(f"logs are in {plan.run_dir}")

    def started(self, name: str, pid: int) -> None:
        self._line(name, f"started, pid {pid}")

    def state(self, name: str, state: str, detail: str) -> None:
        if self._states.get(name) != state:
            self._states[name] = state
            self._line(name, state)

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
        self.note(f"{name:<12} {text}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began_s
