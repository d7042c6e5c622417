"""A worker's life as a process: load, serve, drain, stop."""

import asyncio
import json
import logging
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.base import EngineDeadError, WorkerIdentity
from proto.join import JoinRequest
from tandem.worker.backend import make_engine
from tandem.worker.config import WorkerConfig
from tandem.worker.join import keep_joining
from tandem.worker.worker import Worker, serving

log = logging.getLogger(__name__)

T = TypeVar("T")

#: After the engine has died: time for the faults of what was in flight to reach the gateways.
LAST_WORDS_S = 0.3


async def run_worker(config: WorkerConfig, stop: asyncio.Event) -> None:
    """Serves until `stop` is set and the drain is over. Raises EngineDeadError when the engine dies.

    Every start is a new epoch: tickets and reservations of an earlier one are void.
    """
    identity = WorkerIdentity(config.name, uuid.uuid4().hex[:16], config.role)
    engine = make_engine(config.reachable_engine(), identity)
    try:
        info = await _unless(stop, engine.start())
        if info is not None:
            async with serving(config, engine, identity, info) as (worker, address):
                await _live(worker, address, config, stop)
    finally:
        await engine.stop()


async def _live(worker: Worker, address: str, config: WorkerConfig, stop: asyncio.Event) -> None:
    _say("ready", worker, address=address, role=worker.duty.role.value, engine=worker.info.engine)
    request = JoinRequest(worker.duty.worker_id, worker.duty.epoch, address)
    joins = [asyncio.create_task(keep_joining(gateway, request, config.tls)) for gateway in config.join]
    try:
        await _unless(stop, worker.dispatcher.died.wait())
        if worker.dispatcher.dead is None:
            await _drain(worker, config.drain_s)
    finally:
        for join in joins:
            join.cancel()
        await asyncio.gather(*joins, return_exceptions=True)
    if worker.dispatcher.dead is not None:
        await worker.service.announce()
        await asyncio.sleep(LAST_WORDS_S)
        _say("engine_dead", worker, message=worker.dispatcher.dead.message)
        raise EngineDeadError(worker.dispatcher.dead.message)


async def _drain(worker: Worker, limit_s: float) -> None:
    """No new work; running answers, promised ones and KV that may be being read get a bounded time (B-50)."""
    outstanding = await worker.service.drain(False)
    _say("draining", worker, outstanding=outstanding, limit_s=limit_s)
    try:
        async with asyncio.timeout(limit_s):
            await worker.drained()
    except TimeoutError:
        log.warning("%s: %d still outstanding after %.0f s", worker.duty.worker_id, worker.state.outstanding, limit_s)
    _say("drained", worker, outstanding=worker.state.outstanding)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when `stop` is set first; then `work` is cancelled."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for pending in (task, stopped):
            pending.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


def _say(event: str, worker: Worker, **figures: object) -> None:
    """One line of JSON on standard output, for whoever started this process."""
    who = {"event": event, "worker_id": worker.duty.worker_id, "epoch": worker.duty.epoch}
    print(json.dumps({**who, **figures}), flush=True)
