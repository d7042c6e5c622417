"""A live endpoint."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from loadgen.arms.base import Observation, Watch
from loadgen.client.preflight import Preflight, Ready
from loadgen.client.processes import Execution
from loadgen.client.prompts import PromptWriter
from loadgen.client.runner import Job
from loadgen.client.target import Target
from loadgen.client.telemetry import Telemetry, rebase, sample
from loadgen.client.vocabulary import LocalTokenizer
from loadgen.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How the load is sent. `processes` 0 chooses by the rate."""

    processes: int = 0
    timeout_s: float = 600.0
    tokenizer: LocalTokenizer | None = None
    lead_s: float = 1.0

    def processes_for(self, schedule: Schedule) -> int:
        """One process carries some hundred requests/s with their streams."""
        if self.processes:
            return self.processes
        rate = len(schedule.requests) / schedule.window_s if schedule.window_s else 0
        tokens = sum(p.demand.output_tokens for p in schedule.requests)
        per_second = tokens / schedule.window_s if schedule.window_s else 0
        return 2 if rate > 300 or per_second > 15000 else 1


@dataclass
class UrlArm:
    """`stated_gpus`, where given, goes before what the target says of its workers."""

    name: str
    stated_gpus: float | None
    target: Target
    client: ClientSettings = field(default_factory=ClientSettings)
    ready: Ready | None = None
    _execution: Execution | None = None

    @property
    def gpus(self) -> float:
        """Of a target that has not been asked, or does not say, 1."""
        if self.stated_gpus is not None:
            return self.stated_gpus
        return float(self.ready.gpus) if self.ready is not None and self.ready.gpus else 1.0

    @property
    def origin(self) -> str:
        return self.target.base

    async def __aenter__(self) -> Self:
        self.ready = await Preflight(self.target, self.client.tokenizer).run()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stop(self) -> None:
        if self._execution is not None:
            self._execution.stop()

    async def observe(self, schedule: Schedule, salt: int, watch: Watch | None = None) -> Observation:
        assert self.ready is not None, "enter the arm first"
        ready = self.ready
        job = Job(
            ready.target,
            PromptWriter(ready.vocabulary, salt),
            schedule.requests,
            0.0,
            0 if schedule.arrivals.open_loop else schedule.arrivals.concurrency,
            self.client.timeout_s,
        )
        execution = self._execution = Execution(job, self.client.processes_for(schedule), watch, self.client.lead_s)
        telemetry = Telemetry()
        scraping = asyncio.create_task(sample(ready.target, telemetry))
        try:
            gathered = await execution.run()
        finally:
            self._execution = None
            scraping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await scraping
        return Observation(
            tuple(gathered.results),
            gathered.complete,
            rebase(telemetry, gathered.origin_s),
            (*ready.notes, *self._assumed()),
            ready.versions,
            ready.target.model,
        )

    def _assumed(self) -> list[str]:
        """Every figure per GPU rests on this number."""
        if self.stated_gpus is not None:
            return []
        if self.ready is not None and self.ready.gpus:
            return [f"GPUs by the target's status, one a tensor-parallel rank: {self.ready.gpus}"]
        return ["the target does not say how many GPUs it has: 1 is assumed (--gpus)"]
