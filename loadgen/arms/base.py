"""An arm: a layout that a schedule can be run against, wherever it comes from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from loadgen.client.runner import Progress
from loadgen.client.telemetry import Telemetry
from loadgen.result import Result
from loadgen.schedule import Schedule

#: What the display is told: progress and the number of results so far.
Watch = Callable[[Progress, int], None]


@dataclass(frozen=True, slots=True)
class Observation:
    """What one run on one arm gave. `complete` is False after Ctrl-C."""

    results: tuple[Result, ...]
    complete: bool = True
    telemetry: Telemetry = field(default_factory=Telemetry)
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    model: str = ""


class Arm(Protocol):
    """Up while the `async with` block lasts. `observe` runs a whole schedule; `stop` cuts the run under way short.

    `salt` chooses the words of the prompts: arms of one comparison get the same, repetitions another.
    """

    @property
    def name(self) -> str: ...

    @property
    def gpus(self) -> float: ...

    @property
    def origin(self) -> str:
        """Where it comes from, for the report: a URL, a command, a simulated layout."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def observe(self, schedule: Schedule, salt: int, watch: Watch | None = None) -> Observation: ...

    def stop(self) -> None: ...
