"""What one prompt holds on workers. Leaving the context gives it back, whatever happened, without waiting."""

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.cluster.cleanups import Cleanups
from gateway.cluster.client import WorkerClient, WorkerLostError
from gateway.cluster.leases import Lease, LeaseKind
from gateway.cluster.worker import Release, Worker
from gateway.policy.routing import Placement
from gateway.request.roles import Trip
from proto.fault import FaultError
from proto.reservation import ReleaseReservation, RenewReservation, Reservation
from proto.ticket import ReleaseTicket, Ticket
from transfer.ticket import HeldTicket

log = logging.getLogger(__name__)

#: Renewals in one time to live: one or two may fail.
_RENEWALS = 3

#: A pull may still be under way when the lease ends; the reader's heartbeats keep it alive then.
_LEASE_SLACK_S = 120.0


class Hold:
    """A lease here and what it stands for there. Releasing twice is harmless."""

    def __init__(self, worker: Worker, lease: Lease, cleanups: Cleanups) -> None:
        self.worker = worker
        self._lease = lease
        self._cleanups = cleanups

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def held(self) -> bool:
        return self._lease.held

    def spent(self) -> None:
        """The worker has ended it by itself: nothing is left to release."""
        self.worker.leases.give_back(self._lease)

    def release(self) -> None:
        """Gives it back and tells the worker, in a task that outlives the request."""
        if self.worker.leases.give_back(self._lease):
            tell(self.worker, self._call, self._cleanups, f"release of {self._lease.kind} on {self.worker.worker_id}")

    async def _call(self, client: WorkerClient) -> None:
        raise NotImplementedError


class ReservationHold(Hold):
    """KV granted by a decode worker. `trip`: the same in the books of the role policy, where there is one."""

    def __init__(
        self,
        worker: Worker,
        lease: Lease,
        cleanups: Cleanups,
        reservation: Reservation,
        gateway_id: str,
        placement: Placement,
        trip: Trip | None,
        release_s: float,
    ) -> None:
        super().__init__(worker, lease, cleanups)
        self.reservation = reservation
        self.placement = placement
        self.trip = trip
        self._gateway_id = gateway_id
        self._release_s = release_s

    def answered(self) -> None:
        """One of its answers has ended, and the worker has its place back."""
        self.worker.leases.answered(self._lease)

    def spent(self) -> None:
        super().spent()
        self._over()

    def release(self) -> None:
        super().release()
        self._over()

    def _over(self) -> None:
        if self.trip is not None:
            self.trip.ended()

    async def lapsed(self) -> None:
        """Renews the reservation for as long as this runs; returns only when the worker has it no more.

        The time to live is what was granted, not what was asked for.
        """
        renew = RenewReservation(self.reservation.reservation_id, self._gateway_id)
        while True:
            await asyncio.sleep(self.reservation.ttl_s / _RENEWALS)
            connection = self.worker.connection
            if connection is None:
                continue  # whoever waits for the worker itself hears of that
            try:
                if not await connection.client.renew_reservation(renew, self._release_s):
                    return
            except (WorkerLostError, FaultError, TimeoutError) as error:
                log.warning("renewal on %s: %s", self.worker.worker_id, error)

    async def _call(self, client: WorkerClient) -> None:
        await client.release_reservation(ReleaseReservation(self.reservation.reservation_id), self._release_s)


class TicketHold(Hold):
    """KV pinned by a prefill worker. Ages are durations: the worker's own figure plus our waiting since."""

    def __init__(
        self,
        worker: Worker,
        ticket: Ticket,
        owner: str,
        cleanups: Cleanups,
        clock: Callable[[], float],
        release_s: float,
    ) -> None:
        self._held = HeldTicket(ticket, clock())
        left_s = self._held.remaining_s(clock())
        lease = worker.leases.take(LeaseKind.TICKET, owner, ttl_s=left_s + _LEASE_SLACK_S, blocks=ticket.blocks)
        super().__init__(worker, lease, cleanups)
        self._clock = clock
        self._release_s = release_s

    @property
    def age_s(self) -> float:
        return self._held.age_s(self._clock())

    @property
    def ticket(self) -> Ticket:
        """As it must be sent now, its age brought up to date."""
        return self._held.sent(self._clock())

    def usable(self, margin_s: float) -> bool:
        return self._held.usable(self._clock(), margin_s)

    async def _call(self, client: WorkerClient) -> None:
        ticket = self._held.ticket
        await client.release_ticket(ReleaseTicket(ticket.epoch, ticket_id=ticket.ticket_id), self._release_s)


def tell(worker: Worker, call: Release, cleanups: Cleanups, name: str) -> None:
    """Runs a release in the background."""
    cleanups.spawn(release(worker, call), name)


async def release(worker: Worker, call: Release) -> None:
    """Once more if it failed. A worker that does not hear it now is told later, on this connection or the next: what
    is not given back stays promised until its time to live ends, which on a busy fleet is the worst moment."""
    connection = worker.connection
    try:
        if connection is None:
            raise WorkerLostError(worker.health.reason)
        try:
            await call(connection.client)
        except (TimeoutError, FaultError):
            await call(connection.client)
    except (WorkerLostError, TimeoutError):
        worker.owed.append(call)
