"""What is seen of the decode workers while a simulation runs, at fixed moments of virtual time."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from loadgen.simulate.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Seen:
    """One moment: blocks in use by worker, and counters over all of them since the start."""

    at_s: float
    used: tuple[int, ...]
    running: int
    engine_waiting: int
    queued: int
    preemptions: int
    recomputed_tokens: int
    generated_tokens: int
    prefilling_tokens: int = 0
    moved: int = 0


@dataclass(slots=True)
class Watch:
    """Looks every `every_s` while somebody is still to be served; `told` is called every `tell_s`."""

    simulation: Simulation
    every_s: float
    told: Callable[[], None] = lambda: None
    tell_s: float = 5.0
    seen: list[Seen] = field(default_factory=list)

    def start(self) -> None:
        self._look()
        self._tell()

    @property
    def blocks(self) -> int:
        """Of one decode worker."""
        return max(w.pool.limits.blocks for w in self.simulation.fleet.workers.values() if w.role.decodes)

    def between(self, start_s: float, end_s: float) -> list[Seen]:
        return [seen for seen in self.seen if start_s <= seen.at_s <= end_s]

    def used(self, start_s: float, end_s: float) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        """Share of its blocks that each worker has in use: moments x workers."""
        return np.array([seen.used for seen in self.between(start_s, end_s)], dtype=np.float64) / self.blocks

    def _look(self) -> None:
        simulation = self.simulation
        fleet = simulation.fleet
        used, running, waiting, preemptions, recomputed, generated = [], 0, 0, 0, 0, 0
        for worker in fleet.workers.values():
            if not worker.role.decodes:
                continue
            engine = fleet.settled(worker)
            used.append(engine.scheduler.pool.used)
            running += len(engine.scheduler.running)
            waiting += engine.scheduler.waiting_count
            preemptions += engine.counters.preemptions
            recomputed += engine.counters.recomputed_tokens
            generated += engine.generated_tokens
        prefilling = sum(w.outstanding_tokens for w in fleet.workers.values() if w.role.prefills)
        queued, moved = len(simulation.desk.dispatch), simulation.legs.moves.counts["moved"]
        self.seen.append(
            Seen(
                fleet.now_s,
                tuple(used),
                running,
                waiting,
                queued,
                preemptions,
                recomputed,
                generated,
                prefilling,
                moved,
            )
        )
        self._again(self.every_s, self._look)

    def _tell(self) -> None:
        self.told()
        self._again(self.tell_s, self._tell)

    def _again(self, after_s: float, action: Callable[[], None]) -> None:
        if self.simulation.clients.left > 0:
            self.simulation.fleet.engines.at(self.simulation.fleet.now_s + after_s, action)
