"""The states of a worker and of a pair, as seen from one gateway."""

from enum import StrEnum


class WorkerStatus(StrEnum):
    """Only READY workers get new work; what already runs goes on in every state but GONE."""

    CONNECTING = "connecting"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    SUSPECT = "suspect"
    EJECTED = "ejected"
    GONE = "gone"


_LOST = frozenset({WorkerStatus.GONE})

#: SUSPECT is silence or a missed deadline and heals by itself; EJECTED heals only through a probe.
WORKER_TRANSITIONS: dict[WorkerStatus, frozenset[WorkerStatus]] = {
    WorkerStatus.CONNECTING: frozenset({WorkerStatus.WARMING}) | _LOST,
    WorkerStatus.WARMING: frozenset(
        {WorkerStatus.READY, WorkerStatus.DRAINING, WorkerStatus.SUSPECT, WorkerStatus.EJECTED}
    )
    | _LOST,
    WorkerStatus.READY: frozenset({WorkerStatus.DRAINING, WorkerStatus.SUSPECT, WorkerStatus.EJECTED}) | _LOST,
    WorkerStatus.DRAINING: frozenset({WorkerStatus.READY, WorkerStatus.SUSPECT, WorkerStatus.EJECTED}) | _LOST,
    WorkerStatus.SUSPECT: frozenset({WorkerStatus.READY, WorkerStatus.DRAINING, WorkerStatus.EJECTED}) | _LOST,
    WorkerStatus.EJECTED: frozenset(
        {WorkerStatus.WARMING, WorkerStatus.READY, WorkerStatus.DRAINING, WorkerStatus.SUSPECT}
    )
    | _LOST,
    WorkerStatus.GONE: frozenset({WorkerStatus.CONNECTING}),
}


class PairState(StrEnum):
    """Only USABLE pairs carry hand-offs."""

    NEW = "new"
    WARMING = "warming"
    USABLE = "usable"
    QUARANTINED = "quarantined"
    INCOMPATIBLE = "incompatible"


PAIR_TRANSITIONS: dict[PairState, frozenset[PairState]] = {
    PairState.NEW: frozenset({PairState.WARMING, PairState.INCOMPATIBLE}),
    PairState.WARMING: frozenset({PairState.USABLE, PairState.QUARANTINED}),
    PairState.USABLE: frozenset({PairState.QUARANTINED}),
    PairState.QUARANTINED: frozenset({PairState.WARMING}),
    PairState.INCOMPATIBLE: frozenset(),
}
