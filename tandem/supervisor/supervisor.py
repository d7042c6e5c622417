"""Runs a plan: starts everything, says when it is ready, keeps it running, stops all of it."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.cluster.snapshot import ClusterSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from tandem.config import SupervisorConfig
from tandem.process import adopt_orphans
from tandem.supervisor.guard import guard
from tandem.supervisor.keeper import Keeper, StartFailedError, State
from tandem.supervisor.plan import Plan
from tandem.supervisor.reporter import STARTING, Reporter

#: Of the gateway while it starts, and while a worker that died is away.
POLL_S = 0.2
#: While nothing is ready yet nothing is in flight: a child that loads a model need not be waited for.
STOP_WHILE_STARTING_S = 3.0
_PAIRS_IN_MOTION = frozenset({PairState.NEW, PairState.WARMING})


class Probe(Protocol):
    """What the gateway says of the cluster; None while it does not answer."""

    async def __call__(self) -> tuple[bool, ClusterSnapshot] | None: ...


@dataclass(frozen=True, slots=True)
class Stop:
    """`drain` ends gently; `now` cuts the gentleness short."""

    drain: asyncio.Event = field(default_factory=asyncio.Event)
    now: asyncio.Event = field(default_factory=asyncio.Event)

    def on_signal(self) -> None:
        (self.now if self.drain.is_set() else self.drain).set()


class Outcome(StrEnum):
    """How a run ended."""

    ENDED = "ended"  # was ready, and was asked to end
    INTERRUPTED = "interrupted"  # asked to end before it was ready
    FAILED = "failed"


class StoppedError(Exception):
    """A signal asked us to stop; leaves the task group."""


class NotReadyError(Exception):
    """Not ready in time."""


class GatewayLostError(Exception):
    """The gateway stays down."""


class Supervisor:
    """`on_ready` gets the snapshot and the seconds it took, and returns the lines to print."""

    def __init__(
        self,
        plan: Plan,
        config: SupervisorConfig,
        probe: Probe,
        reporter: Reporter,
        on_ready: Callable[[ClusterSnapshot, float], Sequence[str]],
    ) -> None:
        self.plan = plan
        self.config = config
        self.ready = False
        self._probe = probe
        self._reporter = reporter
        self._on_ready = on_ready
        self._keepers: dict[str, Keeper] = {}

    async def run(self, stop: Stop) -> Outcome:
        """Until `stop`, or until something fails for good. Nothing is left running either way."""
        self._reporter.begin(self.plan)
        failure = ""
        adopt_orphans()
        async with guard() as watch:
            self._keepers = {spec.name: Keeper(spec, self.config, self._reporter, watch) for spec in self.plan.children}
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_raise_on(stop.drain))
                    tasks.create_task(self._keep_gateway())
                    tasks.create_task(self._start_workers(tasks))
                    tasks.create_task(self._until_ready(tasks))
            except* StoppedError:
                pass
            except* (StartFailedError, NotReadyError, GatewayLostError) as group:
                failure = str(group.exceptions[0])
            finally:
                self._reporter.end()
                if failure:
                    self._reporter.note(failure)
                await self._stop_all(stop.now, gently=self.ready and not failure)
        if failure:
            return Outcome.FAILED
        return Outcome.ENDED if self.ready else Outcome.INTERRUPTED

    @property
    def keepers(self) -> Sequence[Keeper]:
        return tuple(self._keepers.values())

    async def _keep_gateway(self) -> None:
        await self._keepers[self.plan.gateway.name].keep()
        raise GatewayLostError("the gateway stays down")

    async def _start_workers(self, tasks: asyncio.TaskGroup) -> None:
        for spec in self.plan.workers:
            keeper = self._keepers[spec.name]
            tasks.create_task(keeper.keep())
            if self.plan.staggered:
                await keeper.joined.wait()

    async def _until_ready(self, tasks: asyncio.TaskGroup) -> None:
        began_s = asyncio.get_running_loop().time()
        snapshot: ClusterSnapshot | None = None
        missing = "the gateway does not answer"
        try:
            async with asyncio.timeout(self.config.start_timeout_s):
                while snapshot is None or missing:
                    await asyncio.sleep(POLL_S)
                    seen = await self._probe()
                    if seen is not None:
                        snapshot = seen[1]
                        self._observe(snapshot)
                        missing = self._missing(*seen)
        except TimeoutError:
            raise NotReadyError(
                f"not ready after {self.config.start_timeout_s:.0f} s: {missing}; logs are in {self.plan.run_dir}"
            ) from None
        self.ready = True
        for keeper in self._keepers.values():
            keeper.settled = True
        self._reporter.ready(self._on_ready(snapshot, asyncio.get_running_loop().time() - began_s))
        tasks.create_task(self._watch_returns())

    def _observe(self, snapshot: ClusterSnapshot) -> None:
        if not self.ready:
            self._reporter.state(self.plan.gateway.name, "ready", "")
            self._observe_absent({worker.worker_id for worker in snapshot.workers})
        for worker in snapshot.workers:
            keeper = self._keepers.get(worker.worker_id)
            if keeper is not None and keeper.state is State.RUNNING:
                self._reporter.state(worker.worker_id, worker.status, worker.reason)
                if worker.status is WorkerStatus.READY:
                    keeper.seen_ready(worker.epoch)

    def _observe_absent(self, joined: set[str]) -> None:
        """An engine that loads has not joined: nobody but its log can say how far it is."""
        for spec in self.plan.workers:
            if spec.name not in joined and self._keepers[spec.name].state is State.RUNNING:
                self._reporter.state(spec.name, STARTING, "")

    def _missing(self, ready: bool, snapshot: ClusterSnapshot) -> str:
        """What keeps the layout from being complete; more than /readyz, which is content with one usable pair."""
        states = {worker.worker_id: worker.status for worker in snapshot.workers}
        absent = [spec.name for spec in self.plan.workers if states.get(spec.name) is not WorkerStatus.READY]
        if absent:
            return f"waiting for {', '.join(absent)}"
        warming = [pair for pair in snapshot.pairs if pair.state in _PAIRS_IN_MOTION]
        if warming:
            return f"warming {', '.join(f'{pair.prefill_worker} → {pair.decode_worker}' for pair in warming)}"
        return "" if ready else snapshot.missing or "the gateway says it is not ready"

    async def _watch_returns(self) -> None:
        """After a restart, polls until the worker serves again; at rest it costs nothing but a timer."""
        away: set[str] = set()
        while True:
            await asyncio.sleep(POLL_S)
            away |= {spec.name for spec in self.plan.workers if not self._keepers[spec.name].joined.is_set()}
            if away and (seen := await self._probe()) is not None:
                self._observe(seen[1])
                away = {name for name in away if not self._keepers[name].joined.is_set()}

    async def _stop_all(self, now: asyncio.Event, *, gently: bool) -> None:
        if not any(keeper.child for keeper in self._keepers.values()):
            return
        for keeper in self._keepers.values():
            keeper.expect_end()
        self._reporter.note("draining, then stopping; once more stops at once" if gently else "stopping")
        hurry = asyncio.create_task(self._kill_on(now))
        try:
            await self._stop_in_order(gently)
        finally:
            hurry.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hurry
        self._reporter.note("everything is stopped")

    async def _stop_in_order(self, gently: bool) -> None:
        """The gateway first: it drains what is in flight, for which it needs the workers."""
        grace_s = self.config.stop_timeout_s if gently else STOP_WHILE_STARTING_S
        gateway = self._keepers[self.plan.gateway.name]
        workers = [self._keepers[spec.name] for spec in self.plan.workers]
        drain_s = self.plan.gateway.drain_s if gently else 0.0
        await self._stop_one(gateway, drain_s + grace_s)
        await asyncio.gather(*(self._stop_one(worker, grace_s) for worker in workers))

    async def _stop_one(self, keeper: Keeper, timeout_s: float) -> None:
        if not await keeper.stop(timeout_s) and self.ready:
            self._reporter.note(f"{keeper.spec.name} did not stop within {timeout_s:.0f} s and was killed")

    async def _kill_on(self, now: asyncio.Event) -> None:
        await now.wait()
        for keeper in self._keepers.values():
            keeper.kill()


async def _raise_on(event: asyncio.Event) -> None:
    await event.wait()
    raise StoppedError
