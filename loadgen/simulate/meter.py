"""What the fleet says of itself over virtual time, in the terms of a live target's metrics."""

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.client.telemetry import Point, Telemetry
from loadgen.simulate.fleet import SimFleet
from loadgen.simulate.worker import SimWorker

#: When there are this many points, every second one is forgotten and the next ones come half as often.
_MOST_POINTS = 480


@dataclass(slots=True)
class _Seen:
    """Sums over samples, each standing for the time since the one before; block-seconds and seconds."""

    used: float = 0.0
    stranded: float = 0.0
    seconds: float = 0.0
    preemptions: int = 0


class Meter:
    """Stranded KV (R-49): blocks that are free on one decode worker while the engine of another waits or has preempted.

    While requests wait at the gateway, those blocks count that nobody was promised.
    """

    def __init__(
        self, fleet: SimFleet, queued: Callable[[], int], handoffs: Callable[[], int], busy: Callable[[], bool]
    ) -> None:
        self._fleet = fleet
        self._queued = queued
        self._handoffs = handoffs
        self._busy = busy
        self._every_s = 1.0
        self._last_s = 0.0
        self._seen: dict[str, _Seen] = {}
        self.telemetry = Telemetry()

    def start(self) -> None:
        self._sample()

    def finish(self) -> None:
        """The last figures, at the end of everything."""
        self.telemetry.points.append(Point(self._fleet.now_s, self._look()))

    def means(self, worker: SimWorker) -> tuple[float, float]:
        """Mean share of the worker's KV in use, and stranded, over the run."""
        seen = self._seen.get(worker.name, _Seen())
        whole = seen.seconds * worker.pool.limits.blocks
        return (seen.used / whole, seen.stranded / whole) if whole else (0.0, 0.0)

    def _sample(self) -> None:
        if not self._busy():
            return
        self.telemetry.points.append(Point(self._fleet.now_s, self._look()))
        if len(self.telemetry.points) >= _MOST_POINTS:
            del self.telemetry.points[1::2]
            self._every_s *= 2
        self._fleet.engines.at(self._fleet.now_s + self._every_s, self._sample)

    def _look(self) -> dict[str, float]:
        fleet, span_s = self._fleet, self._fleet.now_s - self._last_s
        self._last_s = fleet.now_s
        waits: dict[str, bool] = {}
        values = dict.fromkeys(
            ("engine_waiting", "running", "kv_used_blocks", "kv_total_blocks", "preemptions", "recomputed_tokens"), 0.0
        )
        free: dict[str, int] = {}
        for name, worker in fleet.workers.items():
            engine = fleet.settled(worker)
            scheduler, counters = engine.scheduler, engine.counters
            seen = self._seen.setdefault(name, _Seen())
            waiting = scheduler.waiting_count
            values["engine_waiting"] += waiting
            values["running"] += len(scheduler.running)
            values["kv_used_blocks"] += scheduler.pool.used
            values["kv_total_blocks"] += scheduler.pool.total
            values["preemptions"] += counters.preemptions
            values["recomputed_tokens"] += counters.recomputed_tokens
            seen.used += scheduler.pool.used * span_s
            seen.seconds += span_s
            if worker.up and worker.role.decodes:
                waits[name] = waiting > 0 or counters.preemptions > seen.preemptions
                free[name] = scheduler.pool.free
            seen.preemptions = counters.preemptions
        queued = self._queued()
        stranded = 0
        waiters = sum(waits.values())
        for name, blocks in free.items():
            if waiters <= waits[name]:
                blocks = min(blocks, max(0, fleet.workers[name].unpromised)) if queued else 0
            stranded += blocks
            self._seen[name].stranded += blocks * span_s
        values["queue"] = float(queued)
        values["kv"] = values["kv_used_blocks"] / max(1.0, values["kv_total_blocks"])
        values["kv_stranded_blocks"] = float(stranded)
        values["bytes_moved"] = float(fleet.engines.moved_bytes)
        values["handoffs"] = float(self._handoffs())
        return values
