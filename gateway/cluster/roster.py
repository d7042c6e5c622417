"""Which workers this gateway knows, where each is, and in which epoch."""

import asyncio
import logging
from collections.abc import Callable

from gateway.cluster.client import WorkerLostError
from gateway.cluster.keeper import Keeper
from gateway.cluster.observer import ClusterObserver
from gateway.cluster.pairs import PairBook
from gateway.cluster.states import WorkerStatus
from gateway.cluster.warmer import Warmer
from gateway.cluster.worker import Connection, Worker
from gateway.config import GatewayConfig
from proto.join import JoinRequest
from proto.worker import WorkerInfo
from proto.worker_name import name_fault

log = logging.getLogger(__name__)


class Roster:
    """Implements keeper.Host. One keeper an address; a worker's name belongs to one address at a time."""

    def __init__(
        self,
        gateway_id: str,
        config: GatewayConfig,
        observer: ClusterObserver,
        pairs: PairBook,
        clock: Callable[[], float],
        changed: Callable[[], None],
        answers_move: Callable[[Worker], bool] = lambda _: False,
    ) -> None:
        self.gateway_id = gateway_id
        self._config = config
        self._observer = observer
        self._pairs = pairs
        self._clock = clock
        self._changed = changed
        self._keepers: dict[str, Keeper] = {}  # by address
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, str] = {}  # by worker id
        self._retired: list[Worker] = []  # earlier epochs whose leases are still being given back
        fluid = config.routing.fluid is not None
        self._warmer = Warmer(pairs, config.health.warm_timeout_s, self.worker, fluid, answers_move)
        self._served_hash = ""

    def open(self) -> None:
        for address in self._config.workers:
            self._keep(address, static=True)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._warmer.close()

    def worker(self, worker_id: str) -> Worker | None:
        keeper = self._keepers.get(self._addresses.get(worker_id, ""))
        return keeper.worker if keeper else None

    def workers(self) -> list[Worker]:
        return [keeper.worker for keeper in self._keepers.values() if keeper.worker is not None]

    def all_workers(self) -> list[Worker]:
        """Earlier epochs and dropped workers too, for as long as this gateway holds anything on them."""
        self._retired = [worker for worker in self._retired if len(worker.leases)]
        return self.workers() + self._retired

    def unreachable(self) -> list[tuple[str, str]]:
        """Addresses where no worker has answered yet, and why."""
        return [(keeper.address, keeper.failure) for keeper in self._keepers.values() if keeper.worker is None]

    def serving(self) -> list[Worker]:
        """Workers of the served model; lost ones too, for the model does not shrink while one reconnects."""
        return [worker for worker in self.workers() if not worker.health.refused]

    def joined(self, request: JoinRequest) -> str:
        """A worker has announced itself; returns why it may not join, or nothing."""
        if fault := name_fault(request.worker_id):
            return fault
        known = self.worker(request.worker_id)
        if known is not None and known.connection is not None and known.info.epoch == request.epoch:
            return known.health.reason if known.health.refused else ""
        self._keep(request.address, static=False)
        self._keepers[request.address].redial()
        return ""

    def tend(self) -> None:
        """What concerns several workers at once: which model is served, and who has to meet whom."""
        self._judge_models()
        self._warmer.match(self._connected_serving())

    # keeper.Host

    def admit(self, info: WorkerInfo, address: str, connection: Connection) -> Worker:
        """A worker has described itself. The same epoch keeps its leases; a new one starts from nothing (B-51)."""
        if fault := name_fault(info.worker_id):
            raise WorkerLostError(fault)
        self._take_address(info, address)
        known = self._keepers[address].worker
        worker = known
        if worker is None or worker.info.epoch != info.epoch or worker.worker_id != info.worker_id:
            worker = self._new_worker(info, address)
        if known is not None and known is not worker:
            self._retired.append(known)
        worker.connection = connection
        self._keepers[address].worker = worker
        worker.health.connected()
        self._judge_models()
        return worker

    async def warm_all(self, worker: Worker) -> None:
        await self._warmer.warm_all(worker, self._connected_serving())

    def _connected_serving(self) -> list[Worker]:
        return [worker for worker in self.serving() if worker.connection]

    def _new_worker(self, info: WorkerInfo, address: str) -> Worker:
        def moved(before: WorkerStatus, after: WorkerStatus, reason: str) -> None:
            log.info("worker %s: %s -> %s %s", info.worker_id, before, after, reason)
            self._observer.worker_moved(info.worker_id, before, after, reason)
            self._changed()

        return Worker(info, address, self._config.health, self._clock, moved, self._changed)

    def _judge_models(self) -> None:
        """One gateway serves one model (B-62): the one it began with, until no worker of it is left."""
        connected = [worker for worker in self.workers() if worker.connection]
        served = next((one.info for one in connected if one.info.model_hash == self._served_hash), None)
        if served is None and connected:
            served = connected[0].info
            self._served_hash = served.model_hash
        for worker in connected:
            info = worker.info
            if served is None or info.model_hash == served.model_hash:
                worker.health.refuse("")
            else:
                worker.health.refuse(f"serves {info.model} ({info.model_hash}), this gateway serves {served.model}")

    def _take_address(self, info: WorkerInfo, address: str) -> None:
        """A worker that has come back on another port: the old address is nobody's now."""
        previous = self._addresses.get(info.worker_id)
        if previous is not None and previous != address:
            known = self.worker(info.worker_id)
            if known is not None and known.connection is not None and known.info.epoch == info.epoch:
                raise WorkerLostError(f"{info.worker_id} is connected at {previous} already")
            self._drop(previous)
        self._addresses[info.worker_id] = address

    def _keep(self, address: str, *, static: bool) -> None:
        if address in self._keepers:
            return
        keeper = Keeper(self, self._config, address, static=static, clock=self._clock)
        self._keepers[address] = keeper
        task = asyncio.create_task(keeper.run(), name=f"keeper-{address}")
        self._tasks[address] = task
        task.add_done_callback(lambda done: self._ended(address, keeper, done))

    def _ended(self, address: str, keeper: Keeper, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("keeper of %s failed", address, exc_info=task.exception())
        if self._keepers.get(address) is keeper:
            self._drop(address)

    def _drop(self, address: str) -> None:
        keeper = self._keepers.pop(address, None)
        task = self._tasks.pop(address, None)
        if task is not None:
            task.cancel()
        if keeper is not None and keeper.worker is not None:
            worker_id = keeper.worker.worker_id
            self._retired.append(keeper.worker)
            if self._addresses.get(worker_id) == address:
                del self._addresses[worker_id]
                self._pairs.forget(worker_id)
        self._changed()
