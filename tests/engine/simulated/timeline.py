"""Drives one virtual engine through a script of outside events."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.simulated.cost import StepCost
from engine.simulated.host_memory import HostMemory, HostTier
from engine.simulated.job import Event, Job, Kind
from engine.simulated.limits import Limits
from engine.simulated.time_account import TimeAccount
from engine.simulated.virtual import VirtualEngine


@dataclass(slots=True)
class Timeline:
    """`load_s` is how long a load takes, `keep_s` how long after its end a held request is released."""

    arrivals: Iterable[tuple[float, Job]]
    aborts: Iterable[tuple[float, str]] = ()
    load_s: float = 0.01
    keep_s: float = 0.02
    log: list[Event] = field(default_factory=list)
    turns: int = 0
    account: TimeAccount | None = None
    kind: type[VirtualEngine] = VirtualEngine
    host: HostTier | None = None

    def run(self, limits: Limits, cost: StepCost, *, closed_form: bool = True, together: bool = True) -> VirtualEngine:
        engine = self.kind(
            limits,
            cost,
            account=self.account,
            gaps=True,
            host=None if self.host is None else HostMemory(self.host, cost, limits.block_size, 1),
            closed_form=closed_form,
            together=together,
        )
        numbers = iter(range(10**9))
        outside: list[tuple[float, int, str, str | Job]] = []
        for at, job in self.arrivals:
            heapq.heappush(outside, (at, next(numbers), "submit", job))
        for at, name in self.aborts:
            heapq.heappush(outside, (at, next(numbers), "abort", name))
        while True:
            due = engine.due_s
            if outside and (due is None or outside[0][0] <= due):
                at, _, what, whom = heapq.heappop(outside)
                if isinstance(whom, Job):
                    engine.submit(whom, at)
                else:
                    {"abort": engine.abort, "loaded": engine.loaded, "release": engine.release}[what](whom, at)
                continue
            if due is None:
                return engine
            self.turns += 1
            for event in engine.advance():
                self.log.append(event)
                if event.kind is Kind.LOADING:
                    heapq.heappush(outside, (event.time_s + self.load_s, next(numbers), "loaded", event.request_id))
                if event.kind is Kind.HELD:
                    heapq.heappush(outside, (event.time_s + self.keep_s, next(numbers), "release", event.request_id))
