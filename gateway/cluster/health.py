"""Whether a worker may be given work: silence, missed deadlines, faults and draining as one state machine."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.cluster.states import WORKER_TRANSITIONS, WorkerStatus
from gateway.config import HealthConfig
from proto.fault import REQUEST_FAULTS, FaultKind
from proto.worker import WorkerState

#: Faults that say nothing about the worker's health: the request's own, the pair's, and plain "not now" (B-44).
NEUTRAL_FAULTS = REQUEST_FAULTS | {
    FaultKind.OVERLOADED,
    FaultKind.DRAINING,
    FaultKind.WRONG_ROLE,
    FaultKind.RESERVATION_UNKNOWN,
    FaultKind.TICKET_EXPIRED,
    FaultKind.TICKET_STALE,
    FaultKind.TICKET_BOUNDARY,
    FaultKind.KV_LOAD_FAILED,
    FaultKind.PAIR_INCOMPATIBLE,
}

#: How long requests wait for a lost worker to come back before they are told that there is none.
RECONNECT_S = 1.0

Moved = Callable[[WorkerStatus, WorkerStatus, str], None]


@dataclass(slots=True)
class Breaker:
    """Consecutive faults by kind of leg, so that a healthy leg does not hide a broken one on the same worker."""

    limit: int
    backoff_s: float
    backoff_max_s: float
    faults: dict[str, int] = field(default_factory=dict)
    opened_s: float | None = None
    openings: int = 0

    @property
    def open(self) -> bool:
        return self.opened_s is not None

    def fault(self, leg: str, now_s: float, fatal: bool = False) -> None:
        self.faults[leg] = self.faults.get(leg, 0) + 1
        if not self.open and (fatal or self.faults[leg] >= self.limit):
            self._trip(now_s)

    def success(self, leg: str) -> None:
        """Real work went well. Only that ends the doubling of the backoff: a probe may pass where work does not."""
        self.faults.pop(leg, None)
        if not self.open and not self.faults:
            self.openings = 0

    def due(self, now_s: float) -> bool:
        if self.opened_s is None:
            return False
        delay_s: float = min(self.backoff_s * 2.0 ** (self.openings - 1), self.backoff_max_s)
        return now_s - self.opened_s >= delay_s

    def probed(self, ok: bool, now_s: float) -> None:
        if ok:
            self.opened_s = None
            self.faults.clear()
        else:
            self._trip(now_s)

    def _trip(self, now_s: float) -> None:
        self.opened_s = now_s
        self.openings += 1


class Health:
    """Facts in, status out. Every move is checked against the table and told to `moved`."""

    def __init__(self, config: HealthConfig, clock: Callable[[], float], moved: Moved) -> None:
        self._config = config
        self._clock = clock
        self._moved = moved
        self.status = WorkerStatus.CONNECTING
        self.reason = ""
        self.breaker = Breaker(config.failures_to_eject, config.probe_backoff_s, config.probe_backoff_max_s)
        self.heard_s: float | None = None
        self._warmed = False
        self._unhealthy = ""
        self._missed = ""
        self._refused = ""
        self._last_fault = ""
        self._draining = False
        self._lost_s = 0.0

    def connected(self) -> None:
        if self.status is WorkerStatus.GONE:
            self._move(WorkerStatus.CONNECTING, "reconnecting")
        self.heard_s = self._clock()
        self._warmed = False
        self._missed = self._unhealthy = ""
        self._move(WorkerStatus.WARMING, "connected")
        self._settle()

    def warmed(self) -> None:
        self._warmed = True
        self._settle()

    def heard(self, state: WorkerState) -> None:
        self.heard_s = self._clock()
        self._draining = state.draining
        self._unhealthy = "" if state.healthy else (state.detail or "the worker says it is unhealthy")
        self._settle()

    def tick(self) -> None:
        """Notices silence; call it regularly."""
        self._settle()

    @property
    def refused(self) -> bool:
        return bool(self._refused)

    def refuse(self, reason: str) -> None:
        """Takes the worker out for what it is, whatever it does; an empty reason lets it in again."""
        if reason != self._refused:
            self._refused = reason
            self._settle()

    def lost(self, reason: str) -> None:
        if self.status is not WorkerStatus.GONE:
            self._lost_s = self._clock()
            self._move(WorkerStatus.GONE, reason)

    def success(self, leg: str) -> None:
        self.breaker.success(leg)
        if self._missed:
            self._missed = ""
            self._settle()

    def fault(self, leg: str, kind: FaultKind, message: str) -> None:
        """A leg failed. The request's own faults never count (B-44)."""
        if kind in NEUTRAL_FAULTS:
            return
        self._last_fault = f"{leg}: {kind}: {message}"
        self.breaker.fault(leg, self._clock(), fatal=kind is FaultKind.ENGINE_DEAD)
        self._settle()

    def deadline_missed(self, what: str) -> None:
        """Something took too long: no new work until a probe or other work comes through (B-29)."""
        self._missed = what
        self._settle()

    @property
    def probe_due(self) -> bool:
        """A suspect is probed at once, an ejected worker after its backoff; a silent one would not answer."""
        if self.status is WorkerStatus.EJECTED:
            return not self._refused and self.breaker.due(self._clock())
        return self.status is WorkerStatus.SUSPECT and bool(self._missed) and not self._stale

    def probed(self, ok: bool, detail: str = "") -> None:
        """What a probe that really reached the engine found (B-43)."""
        if not ok:
            self._last_fault = f"probe: {detail}"
        if not ok or self.breaker.open:
            self.breaker.probed(ok, self._clock())
        self._missed = ""
        self._settle()

    @property
    def recovering(self) -> bool:
        """Not usable now, but likely to be soon: worth waiting for. A lost worker gets a moment to reconnect."""
        if self.status is WorkerStatus.GONE:
            return self._clock() - self._lost_s < RECONNECT_S
        return self.status in (WorkerStatus.CONNECTING, WorkerStatus.WARMING, WorkerStatus.SUSPECT)

    @property
    def consecutive_faults(self) -> int:
        return max(self.breaker.faults.values(), default=0)

    @property
    def _stale(self) -> bool:
        return self.heard_s is None or self._clock() - self.heard_s > self._config.stale_after_s

    def _settle(self) -> None:
        if self.status in (WorkerStatus.GONE, WorkerStatus.CONNECTING):
            return
        status, reason = self._target()
        if status is not self.status:
            self._move(status, reason)
        else:
            self.reason = reason

    def _target(self) -> tuple[WorkerStatus, str]:
        if self._refused:
            return WorkerStatus.EJECTED, self._refused
        if self.breaker.open:
            return WorkerStatus.EJECTED, self._last_fault
        if not self._warmed:
            return WorkerStatus.WARMING, "warming its pairs"
        if self._stale:
            return WorkerStatus.SUSPECT, f"silent for more than {self._config.stale_after_s:g} s"
        if self._unhealthy or self._missed:
            return WorkerStatus.SUSPECT, self._unhealthy or self._missed
        if self._draining:
            return WorkerStatus.DRAINING, "draining"
        return WorkerStatus.READY, ""

    def _move(self, after: WorkerStatus, reason: str) -> None:
        before = self.status
        if after not in WORKER_TRANSITIONS[before]:
            raise RuntimeError(f"a worker cannot move from {before} to {after}")
        self.status = after
        self.reason = reason
        self._moved(before, after, reason)
