"""Progress on a terminal: one row a child, redrawn while it starts."""

import time
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tandem.supervisor.child import Death
from tandem.supervisor.log_line import last_told
from tandem.supervisor.plan import Plan
from tandem.supervisor.reporter import STARTING, PlainReporter

_REFRESH_PER_S = 4


class _Row:
    def __init__(self) -> None:
        self.state = "waiting"
        self.detail = ""
        self.spinner = Spinner("dots")


class LiveReporter(PlainReporter):
    """A table until everything is ready, plain lines from then on."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._rows: dict[str, _Row] = {}
        self._plan: Plan | None = None
        self._live: Live | None = None

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        self._plan = plan
        self._rows = {child.name: _Row() for child in plan.children}
        self._live = Live(
            get_renderable=self._table, console=self.console, refresh_per_second=_REFRESH_PER_S, transient=True
        )
        self._live.start()

    def started(self, name: str, pid: int) -> None:
        if self._live is None:
            super().started(name, pid)
        elif row := self._rows.get(name):
            row.state = STARTING

    def state(self, name: str, state: str, detail: str) -> None:
        if self._live is None:
            super().state(name, state, detail)
        elif row := self._rows.get(name):
            row.state, row.detail = state, detail

    def ready(self, lines: Sequence[str]) -> None:
        self.end()
        super().ready(lines)

    def died(self, death: Death, log: str, restart_in_s: float | None) -> None:
        if restart_in_s is None:
            self.end()
        super().died(death, log, restart_in_s)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        logs = {child.name: child.log for child in self._plan.children} if self._plan else {}
        for name, row in self._rows.items():
            mark: RenderableType = Text("✓", "green") if row.state == "ready" else row.spinner
            last = row.detail or ("" if row.state == "ready" else last_told(logs[name]))
            shown = Text(last, "dim", no_wrap=True, overflow="ellipsis")
            table.add_row(mark, name, row.state, shown)
        table.add_row("", "", Text(f"{time.monotonic() - self._began_s:.0f} s", "dim"), "")
        return table
