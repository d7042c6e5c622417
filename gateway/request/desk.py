"""Where prompts wait for KV on a decode worker, and get it (invariant 1: place before you compute)."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from gateway.cluster.cluster import Cluster
from gateway.cluster.leases import LeaseKind
from gateway.config import GatewayConfig
from gateway.policy.absence import could_take
from gateway.policy.bid import Bid, Line
from gateway.policy.control.controller import Controller, controller_of
from gateway.policy.dispatch import Dispatch
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.group import together
from gateway.policy.insistence import Insistence
from gateway.policy.prefix import PrefixKey
from gateway.policy.routing import Dead, NoRoute, Placement, Rules, place
from gateway.policy.standing import REOPEN_S
from gateway.policy.turned_away import TurnedAway, Why
from gateway.request.asking import Asking, Turn, Turns
from gateway.request.errors import RequestError
from gateway.request.holds import ReservationHold
from gateway.request.overruns import Overruns
from gateway.request.refusals import turned_away, worker_away
from gateway.request.roles import Roles

#: Of a look at the fleet that is for no prompt.
NO_PREFIX = PrefixKey((), "")


class Desk:
    """The dispatch of one gateway with workers to ask, clients that leave, and a clock that runs."""

    def __init__(
        self,
        cluster: Cluster,
        config: GatewayConfig,
        clock: Callable[[], float],
        controller: Controller | None = None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self.controller = controller or controller_of(config, clock)
        line: Line[asyncio.Future[Turns]] = self.controller.line(config.admission.max_queued)
        self._line = line
        self.roles = Roles.of(config.routing, cluster, clock)
        self._dispatch: Dispatch[asyncio.Future[Turns]] = Dispatch(
            line,
            Rules.of(config.routing),
            cluster.fleet,
            lambda route: self._final(route),
            clock,
            gone=lambda future: future.done(),  # cancelled, and its task has not run since
            placing=self.roles.policy.place if self.roles else place,
            objection=self.controller.objection,
            decided=self.controller.decided,
        )
        self._asking = Asking(cluster, config, self.controller)
        self.overruns = Overruns(cluster, self.controller, lambda: self.roles.policy.leaning if self.roles else ())
        self._insistence = Insistence()
        self._reopening: asyncio.TimerHandle | None = None
        cluster.queued = lambda: len(self._dispatch)
        cluster.subscribe(self._pump)
        cluster.subscribe(self._look_back)

    def arrive(self) -> int:
        return self._dispatch.arrive()

    def settle(self, bid: Bid, prompt_tokens: int, output_tokens: int) -> None:
        """It is over: what it was charged in line is set right."""
        self._dispatch.settle(bid, prompt_tokens, output_tokens)

    def waiting_by_class(self) -> dict[tuple[str, str], int]:
        return self._line.waiting_by_class() if isinstance(self._line, FairQueue) else {}

    async def reserve(self, bid: Bid, client_deadline_s: float = float("inf")) -> ReservationHold:
        """A place for `bid`, after waiting its turn. Raises RequestError when there is none or will not be in time."""
        return (await self.reserve_all(bid, client_deadline_s))[0]

    async def reserve_all(self, bid: Bid, client_deadline_s: float = float("inf")) -> list[ReservationHold]:
        """Places for all its prompts at once, or for none: while one of them waits, none holds anything."""
        started_s = self._clock()
        limit_s = self._stand(bid, client_deadline_s) - started_s
        try:
            async with asyncio.timeout(max(0.0, limit_s)):
                while True:
                    if holds := await self._asking.all(await self._turn(bid)):
                        self._dispatch.granted()
                        self.controller.early.granted()
                        return holds
                    if bid.parts:
                        bid.asks += 1
                        # Two gateways that have taken from each other must not do so in step for ever.
                        await asyncio.sleep(random.uniform(0.5, 1.5) * REOPEN_S)
        except TimeoutError:
            why = Why.TTFT if self.controller.broken_promise(bid.claim) else Why.QUEUE_TIMEOUT
            raise turned_away(self._dispatch.too_late(bid, self._clock() - started_s, why)) from None

    async def ask_at(self, bid: Bid, placement: Placement) -> ReservationHold | None:
        """The word of one worker alone, without standing in line: for an answer that has begun. None: no."""
        if self._cluster.worker(placement.worker_id) is None:
            return None
        holds = await self._asking.all([self._hold_place(bid, placement, new=False)])
        return holds[0] if holds else None

    def _stand(self, bid: Bid, client_deadline_s: float) -> float:
        """Renews what the bid claims in line; returns the moment at which waiting becomes pointless."""
        if bid.plan is None:
            bid.claim = replace(bid.claim, deadline_s=self._clock() + self._config.deadlines.queue_s)
        else:
            bid.claim = self.controller.claim(bid.plan, client_deadline_s)
            if bid.parts:
                output = sum(part.plan.output_tokens for part in bid.parts if part.plan)
                bid.claim = replace(bid.claim, prompt_tokens=bid.need.prompt_tokens, expected_output_tokens=output)
        return self.controller.lapse_s(bid.claim)

    def joined(self, bids: list[Bid]) -> Bid:
        """One place in line for all prompts of a request; what was promised is promised for the longest."""
        if len(bids) == 1:
            return bids[0]
        longest = max(bids, key=lambda bid: bid.need.prompt_tokens)
        return replace(
            longest,
            need=together([bid.need for bid in bids]),
            arrival=self.arrive(),
            decision=None,
            parts=tuple(bids),
        )

    async def _turn(self, bid: Bid) -> Turns:
        future: asyncio.Future[Turns] = asyncio.get_running_loop().create_future()
        entry = self._dispatch.enter(bid, future)
        if isinstance(entry, TurnedAway):
            raise self._refusal(entry)
        if isinstance(entry, Placement):
            return self._hold_places(bid, entry)
        try:
            self._pump()
            self._turn_away()
            return await future
        except BaseException:
            _undo(future)
            raise
        finally:
            if self._dispatch.leave(entry):
                self._pump()

    def _pump(self) -> None:
        """Gives everybody at the head of the line what can be given now."""
        for ask, verdict in self._dispatch.turns():
            if isinstance(verdict, Placement):
                ask.item.set_result(self._hold_places(ask.bid, verdict))
            else:
                ask.item.set_exception(self._refusal(verdict))
        if len(self._dispatch):
            self._pump_later()

    def _look_back(self) -> None:
        self.controller.early.look_back(lambda: self._cluster.fleet(NO_PREFIX), len(self._dispatch))

    def _turn_away(self) -> None:
        for ask, verdict in self._dispatch.overflow():
            if not ask.item.done():
                ask.item.set_exception(turned_away(verdict))

    def _hold_places(self, bid: Bid, placement: Placement) -> Turns:
        """Counts the places as taken while workers are asked, so that several can be asked for at once."""
        places = (placement, *placement.also)
        new = not bid.asks
        return [self._hold_place(each, its, new=new) for each, its in zip(bid.prompts, places, strict=True)]

    def _hold_place(self, bid: Bid, placement: Placement, *, new: bool) -> Turn:
        worker = self._cluster.worker(placement.worker_id)
        assert worker is not None  # it was in the fleet a moment ago, in this very task
        lease = worker.leases.take(
            LeaseKind.RESERVATION,
            bid.request_id,
            ttl_s=self._config.deadlines.reserve_s + self._config.deadlines.queue_s,
            blocks=bid.need.likely_blocks(worker.info.block_size_tokens),
            slots=bid.need.answers,
        )
        trip = self.roles.take(bid, placement, arrives=new) if self.roles else None
        return Turn(bid, placement, worker, lease, trip)

    def _final(self, route: NoRoute) -> bool:
        """Whether waiting is pointless: nobody who is about to come back could help."""
        return not self._cluster.recovering(prefill=route.why is Dead.NO_PREFILL)

    def _refusal(self, away: TurnedAway) -> RequestError:
        """A worker that is away must not make a request look as if it could never be served."""
        route = away.outlook
        if away.why is Why.NO_ROUTE and isinstance(route, NoRoute) and could_take(self._cluster.absent(), route):
            return worker_away(route, away.retry_after_s)
        return turned_away(away)

    def _pump_later(self) -> None:
        """A worker that refused opens again by itself; look again then."""
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().call_later(REOPEN_S, self._reopened)

    def _reopened(self) -> None:
        self._reopening = None
        self._pump()
        self._insist()

    def _insist(self) -> None:
        """Who waits where other gateways hold what there is must be heard of there, or they would keep it for ever."""
        if (head := self._dispatch.head) is None:
            return
        shared = {one.worker_id for one in self._cluster.workers() if one.ready and one.role.decodes and one.shared}
        if (worker_id := self._insistence.at(shared, head.arrival)) is None:
            return
        if (turn := self._dispatch.insist(worker_id)) is None:
            self._insistence.in_vain()
        else:
            ask, placement = turn
            ask.item.set_result(self._hold_places(ask.bid, placement))


def _undo(future: "asyncio.Future[Turns]") -> None:
    """The bid left at the moment its turn came."""
    if not future.done():
        future.cancel()
    elif not future.cancelled() and future.exception() is None:
        for turn in future.result():
            turn.leave()
