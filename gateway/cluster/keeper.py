"""Keeps one worker connected: dial, describe, attach, watch, and all of it again after a loss."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from gateway.cluster.attachment import Attachment
from gateway.cluster.client import WorkerClient, WorkerLostError
from gateway.cluster.probe import Probe, ProbeError
from gateway.cluster.steady import again_and_again
from gateway.cluster.worker import Connection, Worker
from gateway.config import GatewayConfig
from proto.channel import open_channel
from proto.fault import FaultError
from proto.ticket import ReleaseTicket, Ticket
from proto.work import Hello
from proto.worker import WorkerInfo

log = logging.getLogger(__name__)

DESCRIBE_S = 5.0
REDIAL_MIN_S = 0.1
REDIAL_MAX_S = 5.0
#: A worker that has joined and then been gone for this long is forgotten; static ones are dialled for ever.
FORGET_AFTER_S = 300.0

#: What ends a session without being a defect of the gateway.
SESSION_ERRORS = (WorkerLostError, FaultError, TimeoutError)


class Host(Protocol):
    """What a keeper needs of the cluster."""

    gateway_id: str

    def admit(self, info: WorkerInfo, address: str, connection: Connection) -> Worker: ...

    async def warm_all(self, worker: Worker) -> None: ...


class Keeper:
    def __init__(
        self, host: Host, config: GatewayConfig, address: str, *, static: bool, clock: Callable[[], float]
    ) -> None:
        self.address = address
        self.static = static
        self.worker: Worker | None = None
        self.failure = "not connected yet"
        self._host = host
        self._config = config
        self._clock = clock
        self._knock = asyncio.Event()
        self._interval_s = min(config.health.watch_interval_s, config.health.stale_after_s / 4)
        self._probe = Probe(host.gateway_id, config.health.probe_timeout_s, config.deadlines.release_s)

    def redial(self) -> None:
        """The worker says it is there: do not wait for the backoff."""
        self._knock.set()

    async def run(self) -> None:
        """Returns only when the worker is to be forgotten."""
        delay_s, lost_s = REDIAL_MIN_S, self._clock()
        while self.static or self._clock() - lost_s < FORGET_AFTER_S:
            self._knock.clear()
            connected_s = await self._try_session()
            if connected_s is not None:
                delay_s, lost_s = REDIAL_MIN_S, self._clock()
            try:
                await asyncio.wait_for(self._knock.wait(), delay_s)
            except TimeoutError:
                delay_s = min(2 * delay_s, REDIAL_MAX_S)

    async def _try_session(self) -> float | None:
        """One connection from dial to loss; returns when it had come up, or None if it never did."""
        client = WorkerClient(open_channel(self.address, self._config.tls))
        connected_s: float | None = None
        try:
            info = await client.describe(DESCRIBE_S)
            connection = Connection(client, Attachment())
            self.worker = worker = self._host.admit(info, self.address, connection)
            connection.attachment.orphaned = partial(self._owe, worker)
            connected_s = self._clock()
            self.failure = "the gateway closed the connection"
            await self._session(worker, connection)
        except SESSION_ERRORS as error:
            self._failed(str(error) or type(error).__name__)
        except Exception as error:
            # A worker of another version, or a defect: dialled again like any other, or a static one would be lost.
            log.exception("session with the worker at %s", self.address)
            self._failed(f"{type(error).__name__}: {error}")
        finally:
            if self.worker is not None:
                self._disconnect(self.worker)
            await client.close()
        return connected_s

    def _failed(self, reason: str) -> None:
        if reason != self.failure:
            log.warning("worker at %s: %s", self.address, reason)
        self.failure = reason

    def _disconnect(self, worker: Worker) -> None:
        if worker.connection is not None:
            worker.connection.attachment.close(self.failure)
            worker.connection = None
        worker.health.lost(self.failure)

    async def _session(self, worker: Worker, connection: Connection) -> None:
        """Runs until the stream breaks. The watch may break alone: silence is then what takes the worker out."""
        chores: dict[str, Coroutine[Any, Any, None]] = {
            "watch": self._watch(worker, connection.client),
            "warm": self._warm(worker),
            "tend": self._steadily(partial(self._tend, worker), "tending", worker),
            "probe": self._steadily(partial(self._probe_when_due, worker), "probe", worker),
            "debts": self._steadily(partial(self._pay_debts, worker, connection.client), "debts", worker),
        }
        tasks = [asyncio.create_task(chore, name=f"{name}-{worker.worker_id}") for name, chore in chores.items()]
        try:
            await connection.attachment.run(connection.client.attach(), Hello(self._host.gateway_id, worker.info.epoch))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, worker: Worker, client: WorkerClient) -> None:
        delay_s = REDIAL_MIN_S
        while True:
            try:
                async for state in client.watch(self._config.health.watch_interval_s):
                    if state.epoch == worker.info.epoch:  # else our stream is about to break, too
                        worker.heard(state)
                        delay_s = REDIAL_MIN_S
            except SESSION_ERRORS as error:
                log.warning("watch of %s: %s", worker.worker_id, error)
            except Exception:
                # A defect over one piece of news must not make the worker silent for good.
                log.exception("watch of %s", worker.worker_id)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, REDIAL_MAX_S)

    def _steadily(self, work: Callable[[], Awaitable[None]], what: str, worker: Worker) -> Coroutine[Any, Any, None]:
        return again_and_again(work, self._interval_s, f"{what} of {worker.worker_id}")

    async def _warm(self, worker: Worker) -> None:
        """Once, but until it is done: a worker that is never warm takes no work."""
        delay_s = REDIAL_MIN_S
        while True:
            try:
                await self._host.warm_all(worker)
                worker.health.warmed()
                return
            except Exception:
                log.exception("warming of %s", worker.worker_id)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, REDIAL_MAX_S)

    async def _tend(self, worker: Worker) -> None:
        worker.health.tick()

    def _owe(self, worker: Worker, ticket: Ticket) -> None:
        """KV that nobody will read."""
        release, release_s = ReleaseTicket(ticket.epoch, ticket_id=ticket.ticket_id), self._config.deadlines.release_s
        worker.owed.append(lambda client: client.release_ticket(release, release_s))

    async def _pay_debts(self, worker: Worker, client: WorkerClient) -> None:
        """The worker has outlived the connection, and with it everything that nobody could release (B-39)."""
        while worker.owed:
            try:
                await worker.owed[0](client)
            except SESSION_ERRORS as error:
                log.warning("late release on %s: %s", worker.worker_id, error)
                return
            except Exception:
                # A debt that cannot be said must not keep back those behind it.
                log.exception("late release on %s", worker.worker_id)
            worker.owed.pop(0)

    async def _probe_when_due(self, worker: Worker) -> None:
        if worker.health.probe_due:
            await self._probe_once(worker)

    async def _probe_once(self, worker: Worker) -> None:
        try:
            await self._probe(worker)
        except (*SESSION_ERRORS, ProbeError) as error:
            worker.health.probed(False, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("probe of %s", worker.worker_id)
            worker.health.probed(False, f"{type(error).__name__}: {error}")
        else:
            worker.health.probed(True)
