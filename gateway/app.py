"""The gateway as a process: HTTP for clients, gRPC for workers that join, one event loop for both."""

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from gateway.cluster.cluster import Cluster
from gateway.collector import calm_collector
from gateway.config import GatewayConfig
from gateway.http.app import build_http
from gateway.http.exposure import open_doors
from gateway.http.server import CLOSE_S, HttpServer, listen
from gateway.http.surface import Surface, build_surface
from gateway.http.version import VERSION
from gateway.lengths_file import LengthsFile
from gateway.observe.fanout import Fanout
from gateway.observe.metrics import Metrics
from gateway.observe.request_log import RequestLog
from gateway.observe.surface_observer import SurfaceObserver
from gateway.observe.tracing.collector import LostSpansCollector
from gateway.observe.traffic import Traffic
from gateway.policy_versions.collector import VersionCollector
from gateway.policy_versions.history import History
from gateway.policy_versions.outcomes import OutcomeWatch
from gateway.policy_versions.versions import Versions
from gateway.request.lifecycle import Lifecycle
from gateway.request.record import Record

if TYPE_CHECKING:
    from gateway.observe.tracing.exporter import SpanExporter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of one gateway, put together and not yet started."""

    cluster: Cluster
    lifecycle: Lifecycle
    surface: Surface
    metrics: Metrics
    memory: AbstractAsyncContextManager[object]
    traces: AbstractAsyncContextManager[object]


def assemble(config: GatewayConfig, observers: Sequence[SurfaceObserver] = ()) -> Gateway:
    """`observers` are told what the gateway's own metrics and log are told."""
    metrics = Metrics()
    watch, traffic = OutcomeWatch(), Traffic(config.traffic_requests, time.monotonic())
    exporter = _exporter(config)
    observer = Fanout([metrics, RequestLog(), watch, traffic, *([exporter] if exporter else []), *observers])
    cluster = Cluster(config, observer)
    lifecycle = Lifecycle(cluster, config, observer)
    history = History(Path(config.policy_history) if config.policy_history else None)
    versions = Versions(config.policy, lifecycle.controller, history, watch)
    surface = build_surface(config, cluster, lifecycle, observer, metrics.render, versions)
    surface.policy_report = lifecycle.policy
    surface.traffic = _told(traffic, surface)
    surface.decisions = lifecycle.controller.decisions.of
    metrics.watch(cluster.snapshot, cluster.integrity, VERSION, lifecycle.policy)
    metrics.add(VersionCollector(watch.ever))
    metrics.add(LostSpansCollector(lambda: exporter.lost if exporter else 0))
    return Gateway(cluster, lifecycle, surface, metrics, _memory(config, lifecycle), exporter or nullcontext())


def _told(traffic: Traffic, surface: Surface) -> Callable[[float, bool], dict[str, Any]]:
    """Who tells is part of it: behind a load balancer the accounts of several gateways are added up."""
    cluster = surface.cluster

    def document(within_s: float, rows: bool) -> dict[str, Any]:
        controller = surface.lifecycle.controller
        running = [one for one in cluster.requests if isinstance(one, Record)]
        seen = traffic.seen(running, cluster.clock(), within_s)
        who = {"id": cluster.gateway_id, "version": VERSION, "model": surface.served.name}
        return seen.document(controller.drifts.total(), controller.newest_drifts, rows=rows) | {"gateway": who}

    return document


def _exporter(config: GatewayConfig) -> "SpanExporter | None":
    if config.traces is None:
        return None
    from gateway.observe.tracing.exporter import SpanExporter  # with an HTTP client, which nothing else here needs

    return SpanExporter(config.traces)


def _memory(config: GatewayConfig, lifecycle: Lifecycle) -> AbstractAsyncContextManager[object]:
    if not config.lengths_file:
        return nullcontext()
    return LengthsFile(Path(config.lengths_file), lifecycle.controller, config.lengths_save_s)


def create_app(config: GatewayConfig) -> FastAPI:
    """For any ASGI server that honours the lifespan protocol; workers join while it runs."""
    gateway = assemble(config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with gateway.traces, gateway.memory, gateway.cluster:
            yield
        gateway.surface.texts.close()

    return build_http(gateway.surface, lifespan)


async def run_gateway(config: GatewayConfig, stop: asyncio.Event) -> None:
    """Serves until `stop` is set and what was in flight has ended, or `drain_s` is over.

    Prints one JSON line when it listens. While draining, /livez stays 200 and /readyz is 503.
    """
    gateway = assemble(config)
    for door in open_doors(config):
        log.warning("OPEN TO THE NETWORK: %s", door)
    with listen(config.host, config.port, config.deadlines.write_s) as listener:
        async with (
            gateway.traces,
            gateway.memory,
            gateway.cluster,
            HttpServer(build_http(gateway.surface), listener) as server,
        ):
            calm_collector()
            _say("ready", gateway, listener)
            await _stopped(stop, server)
            await _drain(gateway, config.drain_s)
            _say("drained", gateway, listener)
    gateway.surface.texts.close()


async def _stopped(stop: asyncio.Event, server: HttpServer) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({stopping, server.task}, return_when=asyncio.FIRST_COMPLETED)
        if server.task.done():
            server.task.result()
            raise RuntimeError("the HTTP server ended by itself")
    finally:
        stopping.cancel()


async def _drain(gateway: Gateway, limit_s: float) -> None:
    gateway.surface.draining = True
    gateway.lifecycle.refuse_new()
    log.info("draining: %s", gateway.cluster.integrity())
    if not await gateway.lifecycle.idle(limit_s):
        log.warning("still in flight after %.0f s, and ended now: %s", limit_s, gateway.cluster.integrity())
        await gateway.lifecycle.cut(CLOSE_S)


def _say(event: str, gateway: Gateway, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    line = {
        "event": event,
        "http": f"http://{shown}:{port}",
        "grpc": gateway.cluster.join_address,
        "gateway_id": gateway.cluster.gateway_id,
        "pid": os.getpid(),
        "version": VERSION,
    }
    print(json.dumps(line), flush=True)
