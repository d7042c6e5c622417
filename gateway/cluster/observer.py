"""What the cluster tells whoever watches it."""

from typing import Protocol

from gateway.cluster.states import PairState, WorkerStatus


class ClusterObserver(Protocol):
    """Called synchronously on the event loop: implementations must be quick and must not raise."""

    def worker_moved(self, worker_id: str, before: WorkerStatus, after: WorkerStatus, reason: str) -> None: ...

    def pair_moved(
        self, prefill_worker: str, decode_worker: str, before: PairState, after: PairState, reason: str
    ) -> None: ...


class SilentClusterObserver:
    """Watches nothing; for tests and tools."""

    def worker_moved(self, worker_id: str, before: WorkerStatus, after: WorkerStatus, reason: str) -> None:
        pass

    def pair_moved(
        self, prefill_worker: str, decode_worker: str, before: PairState, after: PairState, reason: str
    ) -> None:
        pass
