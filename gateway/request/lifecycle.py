"""One request from admission to its last token, with every acquire released whatever happens."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from gateway.cluster.cluster import Cluster
from gateway.config import GatewayConfig
from gateway.policy.control.rows import PolicySnapshot
from gateway.request.answer import Piece
from gateway.request.context import RequestContext, Shared
from gateway.request.desk import Desk
from gateway.request.errors import RequestError
from gateway.request.intent import Intent
from gateway.request.observer import Observer
from gateway.request.record import Record
from gateway.request.refusals import cut_off, draining, no_worker, too_long


class AnswerStream(Protocol):
    """Pieces of all choices, everything that is available at once in one batch. Ends when every choice has ended.

    Raises RequestError for refusals and failures, before or between batches.
    """

    record: Record

    def __aiter__(self) -> "AnswerStream": ...

    async def __anext__(self) -> tuple[Piece, ...]: ...

    async def stop_choice(self, choice: int) -> None:
        """The text layer is done with `choice` (a stop string matched): ends it in the engine; it yields no more."""
        ...


class Lifecycle:
    def __init__(
        self, cluster: Cluster, config: GatewayConfig, observer: Observer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cluster = cluster
        self.config = config
        self.observer = observer
        self.clock = clock
        self._refusing = self._cutting = False
        desk = Desk(cluster, config, clock)
        self.controller = desk.controller
        self.roles = desk.roles
        self.overruns = desk.overruns
        self._shared = Shared(cluster, config, observer, clock, desk, self.objection, self._cut)

    def open(self, intent: Intent, record: Record) -> AbstractAsyncContextManager[AnswerStream]:
        """Runs `intent`. Leaving the context cancels and releases whatever the request still holds.

        `record` is in RECEIVED; its times are on `clock`. The observer's `ended` is called once, on leaving.
        """
        return RequestContext(self._shared, intent, record)

    def policy(self) -> PolicySnapshot:
        """What the policy has counted so far, and who waits."""
        snapshot = self.controller.snapshot(self._shared.desk.waiting_by_class())
        return replace(snapshot, roles=self.roles.row if self.roles else None, moves=self.overruns.rows)

    def refuse_new(self) -> None:
        """From now on every `open` raises DRAINING; what runs goes on."""
        self._refusing = True

    async def idle(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight and every cleanup has ended."""
        deadline_s = self.clock() + timeout_s
        if self._shared.tasks:
            await asyncio.wait(set(self._shared.tasks), timeout=timeout_s)
        await self.cluster.cleanups.settle(max(0.0, deadline_s - self.clock()))
        return self.cluster.integrity().idle

    async def cut(self, timeout_s: float) -> bool:
        """Ends what still runs: its clients are told that the gateway shuts down. Then as `idle`."""
        self._cutting = True
        for task in self._shared.tasks:
            task.cancel()
        return await self.idle(timeout_s)

    def _cut(self) -> RequestError | None:
        return cut_off(self.config.drain_s) if self._cutting else None

    def objection(self, intent: Intent) -> RequestError | None:
        """Why `intent` is refused before anything is done for it."""
        if self._refusing:
            return draining(len(self._shared.tasks), self.config.drain_s)
        window = self.cluster.window
        if window == 0:
            return no_worker()
        longest = max(map(len, intent.prompts))
        answer = intent.sampling.max_tokens if intent.declared_max_tokens else 1
        return too_long(longest, answer, window) if longest + answer > window else None
