"""The one consumer of an engine's frames: hands every output to whoever submitted the request."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

from engine.base import Engine, EngineDeadError, EngineFrame, EngineOutput, EngineStats
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import Ticket
from proto.work import SequenceDelta, Work

log = logging.getLogger(__name__)

#: Of an engine that died before it said anything.
NO_STATS = EngineStats(
    blocks_total=0,
    blocks_used=0,
    running=0,
    waiting=0,
    preemptions=0,
    recomputed_tokens=0,
    prompt_tokens=0,
    generated_tokens=0,
    cached_prompt_tokens=0,
    steps=0,
    step_time_s=0.0,
    tickets_held=0,
    tickets_expired=0,
    failed_notifications=0,
)

#: One engine step's outputs for one owner, each with the key that the owner chose.
News = list[tuple[int, EngineOutput]]


class Owner(Protocol):
    """Whoever submits requests. `deliver` is called once a step and must neither block nor raise."""

    def deliver(self, news: News) -> None: ...


@dataclass(frozen=True, slots=True)
class _Route:
    owner: Owner
    key: int


class Dispatcher:
    """Submits, routes, aborts. Names every request itself, so that a repeated id cannot hit a request still ending."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._routes: dict[str, _Route] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stats = NO_STATS
        self._stopping = False
        self.aborting = 0
        self.frames = 0
        self.orphans_released = 0
        self.dead: Fault | None = None
        self.died = asyncio.Event()

    @property
    def live(self) -> int:
        """Requests whose end has not been delivered yet."""
        return len(self._routes)

    @property
    def idle(self) -> bool:
        return not self._routes and not self._tasks

    def submit(self, work: Work, owner: Owner, key: int, *, hold: bool = False, pull: Ticket | None = None) -> str:
        """Queues work in the engine and returns the name to abort it by. Raises FaultError."""
        if self.dead is not None:
            raise FaultError(self.dead)
        name = f"{work.request_id}~{next(self._numbers)}"
        self._routes[name] = _Route(owner, key)
        try:
            self._engine.submit(replace(work, request_id=name), hold=hold, pull=pull)
        except EngineDeadError as error:
            del self._routes[name]
            self._die(str(error))
            raise FaultError(self.dead or _death(str(error))) from error
        except FaultError:
            del self._routes[name]
            raise
        except Exception as error:
            # A defect of the engine's for this request must not end the stream of all the others.
            del self._routes[name]
            log.exception("the engine could not take %s", name)
            raise FaultError(Fault(FaultKind.INTERNAL, f"{type(error).__name__}: {error}")) from error
        return name

    async def abort(self, name: str) -> None:
        """Ends a request; returns when its KV is safe. Its owner hears nothing more. Ended names are no-ops (B-32)."""
        if self._routes.pop(name, None) is None:
            return
        # A task of its own: the caller may be cancelled, the abort must not be.
        await asyncio.shield(self._spawn(self._abort(name)))

    def hand_over(self, name: str) -> bool:
        """Has the engine end a request with a ticket; its owner hears of that as of any end, or that it goes on here. False: it
        goes on, and nothing more will be said. Ended names are no-ops."""
        if name not in self._routes:
            return True
        try:
            self._engine.hand_over(name)
        except EngineDeadError as error:
            self._die(str(error))
        except Exception:
            # Nobody has promised more than to try.
            log.exception("the engine could not hand over %s", name)
            return False
        return True

    async def release(self, ticket_id: str) -> bool:
        try:
            return await self._engine.release(ticket_id)
        except EngineDeadError as error:
            self._die(str(error))
            return False

    def stats(self) -> EngineStats:
        """The engine's newest figures; the last ones it gave when it is dead."""
        try:
            self._stats = self._engine.stats()
        except EngineDeadError as error:
            self._die(str(error))
        return self._stats

    async def run(self) -> None:
        """Routes frames until the engine dies or is stopped."""
        try:
            async for frame in self._engine.frames():
                self.frames += 1
                self._route(frame)
        except EngineDeadError as error:
            self._die(str(error))
        except Exception as error:
            # Without frames the engine is of no use, whatever it meant to say.
            log.exception("the engine's frames broke off")
            self._die(f"{type(error).__name__}: {error}")
        else:
            if not self._stopping:
                self._die("the engine stopped by itself")

    def stopping(self) -> None:
        """The end of the frames is expected from now on."""
        self._stopping = True

    async def settle(self) -> None:
        """Waits for aborts and releases under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _route(self, frame: EngineFrame) -> None:
        routes = self._routes
        batches: dict[int, tuple[Owner, News]] = {}
        for output in frame:
            route = routes.get(output.request_id)
            if route is None:
                self._orphan(output)
                continue
            delta = output.delta
            if delta.finish is not None or delta.fault is not None:
                del routes[output.request_id]
            batch = batches.get(id(route.owner))
            if batch is None:
                batch = batches[id(route.owner)] = (route.owner, [])
            batch[1].append((route.key, output))
        for owner, news in batches.values():
            self._deliver(owner, news)

    def _deliver(self, owner: Owner, news: News) -> None:
        try:
            owner.deliver(news)
        except Exception:
            # One broken owner must not stop the news of all the others.
            log.exception("an owner could not take its news")

    def _orphan(self, output: EngineOutput) -> None:
        """Its request was aborted while this was on the way; a ticket in it has no owner left (B-27)."""
        if output.ticket is not None:
            self.orphans_released += 1
            self._spawn(self.release(output.ticket.ticket_id))

    async def _abort(self, name: str) -> None:
        self.aborting += 1
        try:
            await self._engine.abort(name)
        except EngineDeadError as error:
            self._die(str(error))
        except Exception:
            log.exception("the engine could not abort %s", name)
        finally:
            self.aborting -= 1

    def _die(self, reason: str) -> None:
        """Everything in flight ends with a fault, now; the process is expected to exit."""
        if self.dead is not None:
            return
        self.dead = _death(reason)
        routes, self._routes = self._routes, {}
        delta = SequenceDelta((), fault=self.dead)
        for name, route in routes.items():
            self._deliver(route.owner, [(route.key, EngineOutput(name, delta))])
        self.died.set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _death(reason: str) -> Fault:
    return Fault(FaultKind.ENGINE_DEAD, reason or "the engine died")
