"""Tells workers how long their engines' steps may be, as the role policy has it, and reads what the steps were."""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from gateway.cluster.client import WorkerLostError
from gateway.cluster.cluster import Cluster
from gateway.cluster.worker import Worker
from gateway.policy.roles import Fluid, Knobs
from proto.fault import FaultError
from proto.worker import StepLimit, StepTotals

log = logging.getLogger(__name__)

#: A worker that hears nothing for so long has its steps back.
LEASE_S = 3.0
#: For whom answers alone run there is nothing to bound until somebody's prompts come: often enough to keep the lease.
_KEPT_S = LEASE_S / 3
_CALL_S = 2.0
#: A worker that could not be told is asked again after this: it may have been busy, or be of a newer version by now.
_AGAIN_S = 5.0

#: Tokens of a step, and of one prompt in it.
Bounds = tuple[int, int]

_FREE: Bounds = 0, 0


@dataclass(slots=True)
class _Listener:
    """One worker in one epoch. `most`: tokens of a step of its engine; 0: it takes no limit; None: it has not been asked.
    `bounds`: those that it has confirmed."""

    worker: Worker
    most: int | None = None
    bounds: Bounds = _FREE
    said_s: float = 0.0
    due: bool = False
    telling: asyncio.Task[None] | None = None


class StepLimits:
    """A worker is told what it does not keep yet. One call to it is under way at a time, and what it says is found as it is
    made: no word is older than the newest, and none waits behind another. `heard` gets the sums of the steps before each.

    The policy plans with bounded steps while every ready worker that has been asked takes limits; else with `whole`. The least
    limit of several gateways holds, and each knows its own prompts alone: so that those of one do not hold back another's, no
    limit is less than answers allow while any worker has several.
    """

    def __init__(
        self,
        policy: Fluid,
        cluster: Cluster,
        clock: Callable[[], float],
        heard: Callable[[Worker, StepTotals], None],
        bounded: Knobs,
        whole: Knobs,
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self._clock = clock
        self._heard = heard
        self._bounded = bounded
        self._whole = whole
        self._listeners: dict[str, _Listener] = {}
        self._timer: asyncio.TimerHandle | None = None

    def in_force(self, worker_id: str) -> int:
        """Tokens that a step of the worker has at most, as far as it has been told; 0 where there is no limit."""
        listener = self._listeners.get(worker_id)
        return self._kept(listener)[0] if listener is not None else 0

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Of every worker that keeps a limit."""
        return {name: kept for name, one in self._listeners.items() if (kept := self._kept(one))[0]}

    def _kept(self, listener: _Listener) -> Bounds:
        return listener.bounds if self._clock() < listener.said_s + LEASE_S else _FREE

    def attend(self, worker_id: str) -> None:
        """What the worker should keep may have changed."""
        listener = self._listeners.get(worker_id)
        if listener is None or not listener.most or not self._policy.knobs.bounds_chunks:
            return
        if self._news(listener):
            self._tell(listener)
        self._look_later()

    def _news(self, listener: _Listener) -> bool:
        """Something other than it keeps, or what it will not keep for much longer."""
        ending = self._clock() >= listener.said_s + _KEPT_S
        return ending or listener.telling is not None or self._wanted(listener) != listener.bounds

    def meet(self, workers: Collection[Worker]) -> None:
        """Asks those that are new, and again those that could not be told; decides how the policy plans."""
        now_s = self._clock()
        self._listeners = {
            one.worker_id: known
            if (known := self._listeners.get(one.worker_id)) and known.worker is one
            else _Listener(one)
            for one in workers
        }
        for listener in self._listeners.values():
            unasked = listener.most is None or (not listener.most and now_s >= listener.said_s + _AGAIN_S)
            if unasked and listener.worker.connection is not None:
                self._tell(listener)
        self._plan()

    def _plan(self) -> None:
        ready = [one.most for one in self._listeners.values() if one.worker.ready and one.most is not None]
        most = min(ready, default=0)
        knobs = replace(self._bounded, largest_step_tokens=min(self._bounded.largest_step_tokens, most))
        states = [one.worker.state for one in self._listeners.values()]
        if any(state is not None and state.attached_gateways > 1 for state in states):
            knobs = replace(knobs, ease_share=0.0)
        if not knobs.bounds_chunks:
            knobs = self._whole
        if knobs != self._policy.knobs:
            self._policy.knobs = knobs
            log.info("steps are %s", f"bounded, up to {most} tokens" if knobs.bounds_chunks else "the engines' own")

    def _tell(self, listener: _Listener) -> None:
        listener.due = True
        if listener.telling is None:
            listener.telling = asyncio.create_task(self._talk(listener), name=f"steps-{listener.worker.worker_id}")

    async def _talk(self, listener: _Listener) -> None:
        try:
            while listener.due:
                listener.due = False
                await self._say(listener)
                listener.due = listener.due and self._wanted(listener) != listener.bounds
        finally:
            listener.telling = None

    async def _say(self, listener: _Listener) -> None:
        worker, bounds = listener.worker, self._wanted(listener)
        listener.said_s = self._clock()
        try:
            if worker.connection is None:
                raise WorkerLostError(worker.health.reason)
            limit = StepLimit(self._cluster.gateway_id, *bounds, LEASE_S)
            report = await worker.connection.client.limit_step(limit, _CALL_S)
        except WorkerLostError:
            listener.most, listener.bounds = None, _FREE
            return
        except (FaultError, TimeoutError) as error:
            if listener.most != 0:
                log.warning("%s is not told how long its steps may be: %s", worker.worker_id, error)
            listener.most, listener.bounds = 0, _FREE
            self._plan()
            return
        self._heard(worker, report.totals)  # of steps under the limit before this one
        listener.bounds = bounds
        if report.most_step_tokens != listener.most:
            listener.most = report.most_step_tokens
            self._plan()

    def _wanted(self, listener: _Listener) -> Bounds:
        policy, worker_id = self._policy, listener.worker.worker_id
        if not (listener.most and policy.knobs.bounds_chunks):
            return _FREE
        tokens = min(policy.budget(worker_id), listener.most)
        return tokens, min(policy.chunk_tokens(worker_id), tokens)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._policy.knobs.look_s, self._look)

    def _look(self) -> None:
        """Workers with prompts in hand now, those with answers alone before what they were told ends."""
        self._timer = None
        kept_s, busy = self._clock() - _KEPT_S, False
        for worker_id, listener in self._listeners.items():
            book = self._policy.book(worker_id)
            if book.backlog or book.promised:
                busy = True
                if book.backlog or listener.said_s <= kept_s:
                    self.attend(worker_id)
        if busy:
            self._look_later()
