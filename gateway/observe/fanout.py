"""Several observers as one; a failing one is heard of once and harms nobody."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from gateway.cluster.states import PairState, WorkerStatus
from gateway.observe.surface_observer import SilentSurfaceObserver, SurfaceObserver
from gateway.request.errors import Reason, RequestError
from gateway.request.observer import Handoff, Moved
from gateway.request.phase import Phase
from gateway.request.record import Record

log = logging.getLogger(__name__)


class Fanout:
    """A SurfaceObserver that tells others."""

    def __init__(self, observers: Sequence[SurfaceObserver]) -> None:
        self._observers = tuple(observers)
        self._listening: dict[str, tuple[SurfaceObserver, ...]] = {}
        self._reported: set[str] = set()

    def _of(self, name: str) -> tuple[SurfaceObserver, ...]:
        """Those that do anything when they hear `name`: some things are told several times a request."""
        found = self._listening.get(name)
        if found is None:
            silent = getattr(SilentSurfaceObserver, name)
            found = tuple([one for one in self._observers if getattr(type(one), name, None) is not silent])
            self._listening[name] = found
        return found

    def _tell(self, name: str, call: Callable[[SurfaceObserver], Any]) -> None:
        for observer in self._of(name):
            try:
                call(observer)
            except Exception:
                known = f"{type(observer).__name__}.{name}"
                if known not in self._reported:
                    self._reported.add(known)
                    log.exception("observer %s failed; further failures of it are not logged", known)

    def phase_changed(self, record: Record, before: Phase, after: Phase, now_s: float) -> None:
        self._tell("phase_changed", lambda one: one.phase_changed(record, before, after, now_s))

    def refused(self, record: Record, error: RequestError) -> None:
        self._tell("refused", lambda one: one.refused(record, error))

    def handed_off(self, record: Record, handoff: Handoff) -> None:
        self._tell("handed_off", lambda one: one.handed_off(record, handoff))

    def moved(self, record: Record, moved: Moved) -> None:
        self._tell("moved", lambda one: one.moved(record, moved))

    def handoff_missing(self, record: Record, worker_id: str) -> None:
        self._tell("handoff_missing", lambda one: one.handoff_missing(record, worker_id))

    def ticket_expired(self, record: Record, worker_id: str, age_s: float) -> None:
        self._tell("ticket_expired", lambda one: one.ticket_expired(record, worker_id, age_s))

    def retried(self, record: Record, phase: Phase, reason: Reason, message: str) -> None:
        self._tell("retried", lambda one: one.retried(record, phase, reason, message))

    def ended(self, record: Record) -> None:
        self._tell("ended", lambda one: one.ended(record))

    def worker_moved(self, worker_id: str, before: WorkerStatus, after: WorkerStatus, reason: str) -> None:
        self._tell("worker_moved", lambda one: one.worker_moved(worker_id, before, after, reason))

    def pair_moved(
        self, prefill_worker: str, decode_worker: str, before: PairState, after: PairState, reason: str
    ) -> None:
        self._tell("pair_moved", lambda one: one.pair_moved(prefill_worker, decode_worker, before, after, reason))

    def responded(self, route: str, status: int) -> None:
        self._tell("responded", lambda one: one.responded(route, status))

    def stream_broken(self, record: Record) -> None:
        self._tell("stream_broken", lambda one: one.stream_broken(record))

    def tokenized(self, tokens: int, seconds: float) -> None:
        self._tell("tokenized", lambda one: one.tokenized(tokens, seconds))

    def tokens_shown(self, count: int) -> None:
        for observer in self._of("tokens_shown"):  # once a write of every stream: no closures here
            observer.tokens_shown(count)
