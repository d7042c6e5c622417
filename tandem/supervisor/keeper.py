"""Keeps one child alive, within limits."""

import asyncio
from collections import deque
from enum import StrEnum

from tandem.config import SupervisorConfig
from tandem.supervisor.child import Child, ChildSpec, Death
from tandem.supervisor.guard import Guard
from tandem.supervisor.reporter import Reporter


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    BACKOFF = "backoff"
    DOWN = "down"  # too many restarts
    STOPPED = "stopped"


class StartFailedError(Exception):
    """A child died before everything was ready once: it would die again, so nothing is gained by trying."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"{death.name} died while starting: {death.cause}")
        self.death = death


class Keeper:
    def __init__(self, spec: ChildSpec, config: SupervisorConfig, reporter: Reporter, guard: Guard) -> None:
        self.spec = spec
        self.state = State.WAITING
        self.joined = asyncio.Event()
        self.epoch = ""  # of the process that joined last: an old epoch's state may linger on the gateway
        self.settled = False
        self.child: Child | None = None
        self.restarts = 0
        self._config = config
        self._reporter = reporter
        self._guard = guard
        self._deaths_s: deque[float] = deque()
        self._stopping = False

    async def keep(self) -> None:
        """Starts the child and starts it again; returns when it is stopped or has died too often."""
        while not self._stopping:
            death = await self._run_once()
            if self._stopping:
                break
            if not self.settled:
                self._reporter.died(death, str(self.spec.log), None)
                raise StartFailedError(death)
            delay_s = self._backoff()
            self._reporter.died(death, str(self.spec.log), delay_s)
            if delay_s is None:
                self.state = State.DOWN
                self._reporter.note(
                    f"{self.spec.name} died {len(self._deaths_s)} times in {self._config.restart_window_s:.0f} s "
                    "and stays down; see its log"
                )
                return
            self.state = State.BACKOFF
            self.joined.clear()
            self.restarts += 1
            await asyncio.sleep(delay_s)
        self.state = State.STOPPED

    async def _run_once(self) -> Death:
        starting = asyncio.ensure_future(self._start())
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await starting  # a process between fork and bookkeeping would be nobody's
            raise
        try:
            return await child.wait()
        finally:
            if child.process.returncode is not None:
                self._guard.forget(child.pid)

    async def _start(self) -> Child:
        self.child = child = await Child.start(self.spec)
        self._guard.watch(child.pid)
        self.state = State.RUNNING
        self._reporter.started(self.spec.name, child.pid)
        return child

    def _backoff(self) -> float | None:
        """Seconds to wait, doubling with each death in the window; None when there were too many."""
        now_s = asyncio.get_running_loop().time()
        self._deaths_s.append(now_s)
        while now_s - self._deaths_s[0] > self._config.restart_window_s:
            self._deaths_s.popleft()
        count = len(self._deaths_s)
        if count > self._config.restarts_max:
            return None
        return min(self._config.restart_backoff_max_s, self._config.restart_backoff_s * 2.0 ** (count - 1))

    def seen_ready(self, epoch: str) -> None:
        """The gateway says that the child's process of this epoch serves."""
        if self.state is State.RUNNING and (self.joined.is_set() or epoch != self.epoch):
            self.epoch = epoch
            self.joined.set()

    def expect_end(self) -> None:
        """From now on the child's end is wanted."""
        self._stopping = True

    async def stop(self, timeout_s: float) -> bool:
        self.expect_end()
        self.state = State.STOPPED
        if self.child is None:
            return True
        clean = await self.child.stop(timeout_s)
        self._guard.forget(self.child.pid)
        return clean

    def kill(self) -> None:
        self.expect_end()
        if self.child is not None:
            self.child.kill_group()
