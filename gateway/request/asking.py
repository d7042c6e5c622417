"""Decode workers asked for places, and what becomes of a call whose caller has left."""

import asyncio
from dataclasses import dataclass

from gateway.cluster.client import WorkerLostError
from gateway.cluster.cluster import Cluster
from gateway.cluster.leases import Lease
from gateway.cluster.worker import Worker
from gateway.config import GatewayConfig
from gateway.policy.bid import Bid
from gateway.policy.control.controller import Controller
from gateway.policy.routing import Placement
from gateway.request.holds import ReservationHold, release, tell
from gateway.request.roles import Trip
from proto.fault import FaultError, FaultKind
from proto.reservation import Refusal, RefusalReason, ReleaseReservation, Reservation


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt's place at a worker that is still to be asked for it."""

    bid: Bid
    placement: Placement
    worker: Worker
    lease: Lease
    trip: Trip | None = None

    def leave(self) -> None:
        """It was not asked after all."""
        self.worker.leases.give_back(self.lease)
        self.not_granted()

    def not_granted(self) -> None:
        if self.trip is not None:
            self.trip.ended()


#: Of every prompt of a bid.
Turns = list[Turn]


class Asking:
    """Puts what the policy asks for to the workers."""

    def __init__(self, cluster: Cluster, config: GatewayConfig, controller: Controller) -> None:
        self._cluster = cluster
        self._config = config
        self._controller = controller

    async def all(self, turns: Turns) -> list[ReservationHold]:
        """The workers' word for all prompts, one after the other; empty when one said no: all have to go on waiting."""
        holds: list[ReservationHold] = []
        try:
            while len(holds) < len(turns):
                turn = turns[len(holds)]
                hold = await self._ask(turn)
                if hold is None:
                    break
                holds.append(hold)
            else:
                return holds
        except BaseException:
            self._give_up(turns[len(holds) :], holds)
            raise
        self._give_up(turns[len(holds) :], holds)
        return []

    def _give_up(self, turns: Turns, granted: list[ReservationHold]) -> None:
        """`turns`: of the one that was not granted, and those that were not asked then."""
        turns[0].not_granted()
        for turn in turns[1:]:
            turn.leave()
        for hold in granted:
            hold.release()

    async def _ask(self, turn: Turn) -> ReservationHold | None:
        """The worker's word; None when it said no and the bid has to go on waiting."""
        bid, placement, worker, lease = turn.bid, turn.placement, turn.worker, turn.lease
        bid.asks += 1
        # Prompts of one request must not share it: what one of them gives up unheard would be taken from the others.
        name = f"{bid.request_id}-{bid.arrival}-r{bid.asks}"
        call = asyncio.ensure_future(self._call(bid, worker, name, placement))
        try:
            # Shielded: a grant whose reply nobody reads would hold KV until its time to live ends.
            reply = await asyncio.shield(call)
        except asyncio.CancelledError:
            self._cluster.cleanups.spawn(self._abandon(call, worker, lease, name), f"abandoned reserve {name}")
            raise
        except Exception as error:
            # It may have been granted all the same, whatever went wrong here.
            worker.not_granted(lease)
            tell(
                worker,
                lambda client: client.release_reservation(self._by_name(name), self._release_s),
                self._cluster.cleanups,
                f"release of {name}",
            )
            if not isinstance(error, WorkerLostError | FaultError | TimeoutError):
                raise
            self._blame(bid, worker, error)
            return None
        if isinstance(reply, Refusal):
            if bid.moves:  # nobody waits for it, and a prompt may fit all the same
                worker.leases.give_back(lease, quiet=True)
            else:
                worker.refused(reply, lease)
            self._controller.not_granted(bid, worker.worker_id, reply)
            self._judge(bid, worker, reply)
            return None
        return self._granted(turn, reply)

    def _granted(self, turn: Turn, reservation: Reservation) -> ReservationHold:
        worker, trip = turn.worker, turn.trip
        worker.leases.granted(turn.lease, reservation.blocks)
        if trip is not None:
            trip.granted()
        return ReservationHold(
            worker,
            turn.lease,
            self._cluster.cleanups,
            reservation,
            self._cluster.gateway_id,
            turn.placement,
            trip,
            self._release_s,
        )

    async def _call(self, bid: Bid, worker: Worker, name: str, placement: Placement) -> Reservation | Refusal:
        if worker.connection is None:
            raise WorkerLostError(worker.health.reason)
        request = self._controller.reserve(
            bid,
            self._cluster.gateway_id,
            name,
            self._config.reservation_ttl_s,
            placement,
            lambda: self._cluster.fleet(bid.prefix),
        )
        return await worker.connection.client.reserve(request, self._config.deadlines.reserve_s)

    async def _abandon(
        self, call: asyncio.Future[Reservation | Refusal], worker: Worker, lease: Lease, name: str
    ) -> None:
        """Whatever the worker answers to a request whose client has left, nothing stays reserved."""
        try:
            refused = isinstance(await call, Refusal)
        except (WorkerLostError, TimeoutError, FaultError):
            refused = False  # it may have been granted all the same
        try:
            if not refused:
                await release(worker, lambda client: client.release_reservation(self._by_name(name), self._release_s))
        finally:
            worker.leases.give_back(lease)

    def _blame(self, bid: Bid, worker: Worker, error: Exception) -> None:
        bid.avoid.add(worker.worker_id)
        if isinstance(error, TimeoutError):
            worker.health.deadline_missed("a Reserve call went unanswered")
        elif isinstance(error, FaultError):
            worker.health.fault("reserve", error.fault.kind, error.fault.message)

    def _judge(self, bid: Bid, worker: Worker, refusal: Refusal) -> None:
        if refusal.reason is RefusalReason.NEVER_FITS:
            bid.never.add(worker.worker_id)
        elif refusal.reason is RefusalReason.ENGINE_DEAD:
            worker.health.fault("reserve", FaultKind.ENGINE_DEAD, "the engine is dead")

    @property
    def _release_s(self) -> float:
        return self._config.deadlines.release_s

    def _by_name(self, name: str) -> ReleaseReservation:
        return ReleaseReservation(gateway_id=self._cluster.gateway_id, request_id=name)
