"""A layout in virtual time: the seam for a fleet simulator, which answers a schedule without a clock or a socket."""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from loadgen.arms.base import Observation, Watch
from loadgen.client.telemetry import Telemetry
from loadgen.result import Result
from loadgen.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Simulated:
    """One result per planned request, times from 0 on the schedule's clock."""

    results: tuple[Result, ...]
    telemetry: Telemetry = field(default_factory=Telemetry)
    notes: tuple[str, ...] = ()
    model: str = ""


class VirtualLayout(Protocol):
    """What a simulator implements. Pure: the same schedule always gives the same results."""

    @property
    def description(self) -> str: ...

    @property
    def gpus(self) -> float: ...

    def simulate(self, schedule: Schedule) -> Simulated: ...


@dataclass
class VirtualArm:
    """`stated_gpus`, where given, goes before the layout's own number. `device`: what the layout imitates."""

    name: str
    layout: VirtualLayout
    stated_gpus: float | None = None
    device: str = ""

    @property
    def gpus(self) -> float:
        return self.layout.gpus if self.stated_gpus is None else self.stated_gpus

    @property
    def origin(self) -> str:
        return f"simulated: {self.layout.description}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stop(self) -> None:
        """A simulation is not cut short."""

    async def observe(self, schedule: Schedule, salt: int, watch: Watch | None = None) -> Observation:
        simulated = await asyncio.to_thread(self.layout.simulate, schedule)
        return Observation(
            simulated.results, True, simulated.telemetry, ("virtual time: figures of a model", *simulated.notes),
            {"node": self.device} if self.device else {}, simulated.model,
        )  # fmt: skip
