"""Worker: what every worker answers, whatever its role."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from engine.base import Engine, EngineDeadError
from proto.fault import Fault, FaultError, FaultKind
from proto.worker import RoleChange, StepLimit, StepReport, WarmResult, WorkerInfo, WorkerState
from tandem.worker.state import StateKeeper
from tandem.worker.step_limits import StepLimits
from transfer.epochs import Epochs

MIN_INTERVAL_S = 0.02
#: How often at most gateways that were refused hear of room: every state makes all of them look at their lines.
ROOM_EVERY_S = 0.1


class WorkerService:
    """`changed` is called after role or drain have changed, for those who publish them elsewhere."""

    def __init__(
        self,
        engine: Engine,
        info: WorkerInfo,
        state: StateKeeper,
        epochs: Epochs,
        step_limits: StepLimits,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._info = info
        self._state = state
        self._epochs = epochs
        self._step_limits = step_limits
        self._changed = changed
        self._news = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None

    async def describe(self, _: None) -> WorkerInfo:
        return replace(self._info, role=self._state.duty.role)

    async def watch(self, interval_s: float) -> AsyncIterator[WorkerState]:
        """A snapshot now, one every interval, and one at once when role, drain or health change;
        one within `ROOM_EVERY_S` when room came free that a gateway had been refused."""
        interval_s = max(MIN_INTERVAL_S, interval_s)
        while True:
            news = self._news
            yield self._state.snapshot()
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), interval_s)

    async def warm(self, peer: WorkerInfo) -> WarmResult:
        """After a hand-shake with a new epoch of the peer, tickets of its earlier epochs are void."""
        try:
            result = await self._engine.warm(peer)
        except EngineDeadError as error:
            raise FaultError(Fault(FaultKind.ENGINE_DEAD, str(error))) from error
        if result.ok:
            self._epochs.learn(peer.worker_id, peer.epoch)
        return result

    async def drain(self, resume: bool) -> int:
        """Takes no new work from now on (or takes it again); what runs may finish."""
        self._state.duty.draining = not resume
        await self.announce()
        return self._state.outstanding

    async def set_role(self, change: RoleChange) -> RoleChange:
        previous, self._state.duty.role = self._state.duty.role, change.role
        await self.announce()
        return RoleChange(previous)

    async def limit_step(self, limit: StepLimit) -> StepReport:
        return self._step_limits.say(limit)

    async def announce(self) -> None:
        """Wakes every watcher."""
        self._wake()
        await self._changed()

    def room(self) -> None:
        """What came free may be what a refused gateway waits for; until the next state it would lie idle."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(ROOM_EVERY_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
