"""The cluster as one gateway sees it: workers, pairs, leases."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from gateway.cluster.cleanups import Cleanups
from gateway.cluster.observer import ClusterObserver, SilentClusterObserver
from gateway.cluster.pairs import Pair, PairBook
from gateway.cluster.registry import Registry
from gateway.cluster.roster import Roster
from gateway.cluster.snapshot import ClusterSnapshot, Integrity
from gateway.cluster.states import PairState
from gateway.cluster.steady import again_and_again
from gateway.cluster.survey import survey, tally
from gateway.cluster.view import View
from gateway.cluster.worker import Worker
from gateway.config import GatewayConfig
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import DecodeCandidate, Fleet
from proto.worker import Role, WorkerInfo

log = logging.getLogger(__name__)


class Tracked(Protocol):
    """A request in flight, as far as the cluster's figures care."""

    @property
    def phase(self) -> StrEnum: ...


class UnknownWorkerError(KeyError):
    """No worker of that name is connected."""


class Cluster:
    """Entered, it serves the Registry on `config.grpc_host:grpc_port` and dials its workers; left, it drops them all."""

    def __init__(
        self,
        config: GatewayConfig,
        observer: ClusterObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.observer = observer or SilentClusterObserver()
        self.gateway_id = config.gateway_id or f"gateway-{uuid.uuid4().hex[:12]}"
        self.clock = clock
        self.cleanups = Cleanups()
        self.requests: set[Tracked] = set()
        self.queued: Callable[[], int] = lambda: 0
        # Whether answers of a worker may go on at another decode worker, which then is its pair.
        self.answers_move: Callable[[Worker], bool] = lambda _: False
        self.pairs = PairBook(config.health, clock, self._pair_moved)
        self.roster = Roster(
            self.gateway_id,
            config,
            self.observer,
            self.pairs,
            clock,
            self.changed,
            lambda writer: self.answers_move(writer),
        )
        self._view = View()
        self._listeners: list[Callable[[], None]] = []
        self._registry = Registry(config, self.roster.joined)
        self._stack = AsyncExitStack()
        self._tending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._registry)
        self.roster.open()
        interval_s = self.config.health.watch_interval_s
        self._tending = asyncio.create_task(again_and_again(self._tend, interval_s, "cluster"), name="cluster")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        await self.cleanups.settle(self.config.deadlines.release_s)
        if self._tending is not None:
            self._tending.cancel()
        await self.roster.close()

    @property
    def join_address(self) -> str:
        """host:port where workers join."""
        return self._registry.address

    @property
    def model(self) -> WorkerInfo | None:
        """The description of a worker of the served model: name, path, window, EOS. None before any worker joined."""
        workers = sorted(self.roster.serving(), key=lambda worker: (not worker.ready, worker.connection is None))
        return workers[0].info if workers else None

    @property
    def window(self) -> int:
        """Longest prompt + answer that a decode worker of the cluster takes; 0 before any worker joined."""
        return max((worker.info.max_model_len for worker in self.roster.serving() if worker.role.decodes), default=0)

    @property
    def kv_tokens(self) -> int:
        """What the largest decode worker can hold; 0 before any worker joined."""
        infos = [worker.info for worker in self.roster.serving() if worker.role.decodes]
        return max((info.blocks_total * info.block_size_tokens for info in infos), default=0)

    def worker(self, worker_id: str) -> Worker | None:
        return self.roster.worker(worker_id)

    def workers(self) -> list[Worker]:
        return self.roster.workers()

    def fleet(self, prefix: BlockHashes) -> Fleet:
        """What may take work now, with what each decode worker is believed to have cached of a prompt."""
        return self._view.fleet([worker for worker in self.workers() if worker.ready], self.pairs.links, prefix)

    def absent(self) -> list[DecodeCandidate]:
        """Decode workers of the served model that take no work now: lost, draining, warming or under suspicion."""
        away = [worker for worker in self.roster.serving() if worker.role.decodes and not worker.ready]
        return [worker.as_decode(0) for worker in away]

    def recovering(self, *, prefill: bool) -> bool:
        """Whether somebody who could do the leg is likely to be back soon."""
        if prefill and any(self._shaking(pair) for pair in self.pairs):
            return True
        return any(
            worker.health.recovering and (worker.role.prefills if prefill else worker.role.decodes)
            for worker in self.workers()
        )

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` is called whenever a worker, a pair or free space may have changed."""
        self._listeners.append(listener)

    def changed(self) -> None:
        self._view.tend()
        for listener in self._listeners:
            listener()

    def snapshot(self) -> ClusterSnapshot:
        return survey(self)

    def integrity(self) -> Integrity:
        return tally(self)

    async def drain(self, worker_id: str, *, resume: bool = False) -> int:
        """Asks a worker to take no new work (or to take it again); returns what it still has outstanding."""
        worker = self.worker(worker_id)
        if worker is None or worker.connection is None:
            raise UnknownWorkerError(worker_id)
        return await worker.connection.client.drain(resume, self.config.deadlines.reserve_s)

    async def set_role(self, worker_id: str, role: Role) -> Role:
        """Has a worker do something else from now on; returns what it did before. Its pairs shake hands at once."""
        worker = self.worker(worker_id)
        if worker is None or worker.connection is None:
            raise UnknownWorkerError(worker_id)
        before = await worker.connection.client.set_role(role, self.config.deadlines.reserve_s)
        if worker.state is not None and worker.state.role is not role:
            worker.heard(replace(worker.state, role=role))  # the same news is on its way
        self.roster.tend()
        return before

    async def _tend(self) -> None:
        self.roster.tend()

    def _shaking(self, pair: Pair) -> bool:
        """Both ends are there and their hand-shake is due or under way."""
        ends = (self.worker(pair.prefill.worker_id), self.worker(pair.decode.worker_id))
        alive = all(end is not None and end.connection is not None for end in ends)
        return alive and pair.state in (PairState.NEW, PairState.WARMING)

    def _pair_moved(self, prefill: str, decode: str, before: PairState, after: PairState, reason: str) -> None:
        log.info("pair %s -> %s: %s -> %s %s", prefill, decode, before, after, reason)
        self.observer.pair_moved(prefill, decode, before, after, reason)
        self.changed()
