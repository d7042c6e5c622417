"""Everything that the endpoints share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.cluster.cluster import Cluster
from gateway.config import GatewayConfig
from gateway.http.failed import Failed, FailedRequests
from gateway.http.intake import Intake
from gateway.http.keys import Keys
from gateway.http.served import ServedModel
from gateway.observe.surface_observer import SurfaceObserver
from gateway.policy.control.decisions import Decision
from gateway.policy.control.rows import PolicySnapshot
from gateway.policy_versions.versions import Versions
from gateway.request.errors import RequestError
from gateway.request.lifecycle import Lifecycle
from gateway.request.phase import Phase
from gateway.text.pool import TextPool


@dataclass(slots=True)
class Surface:
    config: GatewayConfig
    cluster: Cluster
    lifecycle: Lifecycle
    observer: SurfaceObserver
    texts: TextPool
    served: ServedModel
    keys: Keys
    intake: Intake
    versions: Versions
    metrics: Callable[[bool], bytes] = field(default=lambda names: b"")  # with the names of workers, or without
    policy_report: Callable[[], PolicySnapshot | None] = field(default=lambda: None)
    traffic: Callable[[float, bool], dict[str, Any]] = field(default=lambda within_s, rows: {})
    decisions: Callable[[str], list[Decision]] = field(default=lambda request_id: [])
    clock: Callable[[], float] = time.monotonic
    failed: FailedRequests = field(default_factory=FailedRequests)
    draining: bool = False

    @property
    def policy(self) -> str:
        """Version of the policy in force."""
        return self.versions.version

    def ended_in(self, error: RequestError, request_id: str, phase: Phase = Phase.RECEIVED) -> None:
        """Remembers it for `tandem explain`, as many as it knows decisions of."""
        self.failed.keep(request_id, Failed.of(error, phase, self.clock()), self.versions.policy.decisions)


def build_surface(
    config: GatewayConfig,
    cluster: Cluster,
    lifecycle: Lifecycle,
    observer: SurfaceObserver,
    metrics: Callable[[bool], bytes] | None = None,
    versions: Versions | None = None,
) -> Surface:
    texts = TextPool(config.tokenizer_threads, config.deadlines.tokenize_s)
    served = ServedModel(config, cluster, texts)
    surface = Surface(
        config,
        cluster,
        lifecycle,
        observer,
        texts,
        served,
        Keys(config),
        Intake(config.max_bodies_bytes),
        versions or Versions(config.policy),
    )
    if metrics is not None:
        surface.metrics = metrics
    return surface
