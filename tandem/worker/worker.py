"""One worker put together: engine, dispatcher, pools and services on one gRPC server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from decode_pool import Admission, DecodeLimits, DecodeService
from engine.base import Engine, WorkerIdentity
from engine.dispatcher import Dispatcher
from engine.duty import Duty
from prefill_pool import PrefillService
from proto import services
from proto.channel import bind, create_server, is_loopback, join_host_port
from proto.method import Bound, register, serve_stream, serve_two_way, serve_unary
from proto.standard import Health, add_standard_services
from proto.worker import WorkerInfo
from tandem.worker.config import WorkerConfig
from tandem.worker.service import WorkerService
from tandem.worker.state import StateKeeper
from tandem.worker.step_limits import StepLimits

log = logging.getLogger(__name__)

SWEEP_S = 0.25
#: How long calls may go on after the drain; streams of idle gateways never end by themselves.
CLOSE_S = 0.5


class Worker:
    """Everything but the sockets. `info` is what the engine said of itself."""

    def __init__(
        self,
        config: WorkerConfig,
        engine: Engine,
        identity: WorkerIdentity,
        info: WorkerInfo,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        topology = replace(
            info.topology,
            nvlink_domain=config.nvlink_domain or info.topology.nvlink_domain,
            node=config.node or info.topology.node,
            rack=config.rack or info.topology.rack,
            numa=config.numa or info.topology.numa,
        )
        self.info = replace(info, topology=topology)
        self.engine = engine
        self.duty = Duty(identity.worker_id, identity.epoch, identity.role)
        self.dispatcher = Dispatcher(engine)
        self.prefill = PrefillService(self.dispatcher, self.duty, self.info, clock)
        promise = config.admission
        limits = DecodeLimits(
            max_pulls=config.max_pulls,
            lease_margin_s=config.lease_margin_s,
            abandon_s=config.abandon_s,
            admission=Admission(promise.epsilon, promise.pool_share, promise.spread, promise.learn),
        )
        self.decode = DecodeService(
            self.dispatcher, self.duty, self.info, clock, limits, self._works_for_others, self.prefill.leases
        )
        self.state = StateKeeper(self.duty, self.dispatcher, self.prefill, self.decode, clock, config.stall_s)
        self.step_limits = StepLimits(engine, self.dispatcher, clock)
        self.service = WorkerService(
            engine, self.info, self.state, self.decode.epochs, self.step_limits, self.publish_health
        )
        self.decode.refused.room = self.service.room
        self._health: Health | None = None

    def methods(self) -> list[Bound]:
        return [
            serve_unary(services.DESCRIBE, self.service.describe),
            serve_stream(services.WATCH, self.service.watch),
            serve_unary(services.WARM, self.service.warm),
            serve_unary(services.DRAIN, self.service.drain),
            serve_unary(services.SET_ROLE, self.service.set_role),
            serve_unary(services.LIMIT_STEP, self.service.limit_step),
            serve_unary(services.PREFILL, self.prefill.prefill),
            serve_stream(services.BEGIN, self.prefill.begin),
            serve_unary(services.RELEASE_TICKET, self.prefill.release),
            serve_unary(services.RESERVE, self.decode.reserve),
            serve_unary(services.RENEW_RESERVATION, self.decode.renew),
            serve_unary(services.RELEASE_RESERVATION, self.decode.release),
            serve_two_way(services.ATTACH.encoded, self.decode.attach),
        ]

    async def publish_health(self) -> None:
        """Standard health: a drained worker lives but takes no work."""
        if self._health is not None:
            alive, willing = self.dispatcher.dead is None, not self.duty.draining
            await self._health.set(alive, ["", services.WORKER_SERVICE])
            await self._health.set(alive and willing and self.duty.role.prefills, [services.PREFILL_SERVICE])
            await self._health.set(alive and willing and self.duty.role.decodes, [services.DECODE_SERVICE])

    def show_health_on(self, health: Health) -> None:
        self._health = health

    async def keep_house(self) -> None:
        """Ends what is past its time, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.decode.ledger.expire()
                self.prefill.keep_house()
                self.step_limits.tend()
                self.state.observe()
            except Exception:
                log.exception("housekeeping")

    async def drained(self) -> None:
        """Returns when nothing is in flight; stop taking work first."""
        while True:
            if not self.state.outstanding or self.dispatcher.dead is not None:
                return
            # Polled, because tickets are read behind the worker's back, between two engines.
            await asyncio.sleep(0.02)

    def _works_for_others(self) -> bool:
        """Whether KV is in use that no reservation here covers."""
        return self.prefill.in_flight > 0 or self.dispatcher.stats().tickets_held > 0


@asynccontextmanager
async def serving(
    config: WorkerConfig, engine: Engine, identity: WorkerIdentity, info: WorkerInfo
) -> AsyncIterator[tuple[Worker, str]]:
    """Serves a started engine; yields the worker and the address to dial.

    Leaving ends everything at once (drain before, if that is wanted); the engine stays the caller's to stop.
    """
    if config.tls is None and not is_loopback(config.host):
        log.warning("listening on %s without TLS: anyone who can reach it can use this worker", config.host)
    worker, server = Worker(config, engine, identity, info), create_server()
    worker.show_health_on(add_standard_services(server, register(server, worker.methods())))
    port = bind(server, config.host, config.port, config.tls)
    tasks = [asyncio.create_task(worker.dispatcher.run()), asyncio.create_task(worker.keep_house())]
    try:
        await server.start()
        await worker.publish_health()
        yield worker, join_host_port(config.dialled_host, port)
    finally:
        await worker.decode.close()
        await server.stop(CLOSE_S)
        await worker.dispatcher.settle()
        worker.dispatcher.stopping()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
