"""One answer while a decode worker runs it: news in, pieces out, silence noticed."""

import asyncio
from collections.abc import Callable

from gateway.cluster.attachment import Attachment
from gateway.cluster.client import WorkerLostError
from gateway.cluster.leases import LeaseKind
from gateway.cluster.worker import Worker
from gateway.request.answer import Piece
from gateway.request.merge import Merge, MergeError
from proto.fault import FaultError
from proto.ticket import Ticket
from proto.work import SequenceDelta, Work


class SilenceError(TimeoutError):
    """No token for longer than the phase allows. `first` says whether there had been none at all."""

    def __init__(self, first: bool, seconds: float) -> None:
        super().__init__(f"no {'first ' if first else ''}token for {seconds:g} s")
        self.first = first
        self.seconds = seconds


class Running:
    """The sink of one sequence. `push` gets its pieces, `began` the first delta that is no fault, `handed` the ticket of one
    that was handed over; `stays` is called for one that was to be, and is not."""

    def __init__(
        self,
        worker: Worker,
        merge: Merge,
        push: Callable[[Piece], None],
        began: Callable[[SequenceDelta], None],
        clock: Callable[[], float],
        handed: Callable[[Ticket], None],
        stays: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.merge = merge
        self.tokens = 0
        self.finished = False  # by the worker, and well: nothing is left there
        self.first: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._error: Exception | None = None
        self._worker = worker
        self._push = push
        self._began = began
        self._clock = clock
        self._handed = handed
        self._stays = stays
        self._last_s = clock()
        self._attachment: Attachment | None = None
        self._sequence = 0

    def start(self, reservation_id: str, work: Work, ticket: Ticket | None) -> None:
        connection = self._worker.connection
        if connection is None:
            raise WorkerLostError(self._worker.health.reason)
        self._attachment = connection.attachment
        self._sequence = self._attachment.start(reservation_id, work, ticket, self)

    async def drive(self, owner: str, first_token_s: float, idle_s: float) -> None:
        """Returns when the sequence has ended well or was stopped. However it is left, the engine stops working."""
        lease = self._worker.leases.take(LeaseKind.SEQUENCE, owner, ttl_s=float("inf"))
        try:
            while not self._ended.done():
                await self._wait(first_token_s, idle_s)
            if self._error is not None:
                raise self._error
        finally:
            self.abort()
            self._worker.leases.give_back(lease)

    def abort(self) -> None:
        """Stops the engine's work on it, if any. Harmless at any time."""
        if not self._ended.done():
            if self._attachment is not None:
                self._attachment.abort(self._sequence)
            self._end(None)

    def hand_over(self) -> bool:
        """The worker is told to end it with a ticket; False when it has not begun, is over, or its worker hears nothing more."""
        if self._attachment is None or self._ended.done() or not self.first.done():
            return False
        return self._attachment.hand_over(self._sequence)

    def writer_lost(self, worker_id: str) -> None:
        """The KV it waits for may never come: the decode worker is told, and answers with a fault."""
        if self._attachment is not None and not self.first.done():
            self._attachment.writer_lost(self._sequence, worker_id)

    # Sink

    def feed(self, delta: SequenceDelta) -> None:
        if delta.ticket is not None:  # whatever else happens, somebody must give it back
            self._handed(delta.ticket)
        if self._ended.done():
            return
        if delta.stays:
            self._stays()
            if not (delta.tokens or delta.ended):
                return
        self._last_s = self._clock()
        if delta.fault is not None:
            self._end(FaultError(delta.fault))
            return
        try:
            piece = self.merge.add(delta)
        except MergeError as error:
            self.abort()
            self._error = error
            return
        if not self.first.done():
            self._began(delta)
            if piece is not None:
                self.first.set_result(None)
        if piece is not None:
            self.tokens += len(piece.tokens)
            self._push(piece)
        if delta.finish is not None:
            self.finished = True
            self._end(None)

    def lost(self, reason: str) -> None:
        self._end(WorkerLostError(reason))

    @property
    def over(self) -> bool:
        return self._ended.done()

    @property
    def failed(self) -> bool:
        return self._error is not None

    def _end(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._error = error
            self._ended.set_result(None)
            if not self.first.done():
                self.first.set_result(None)

    async def _wait(self, first_token_s: float, idle_s: float) -> None:
        """Sleeps until the end or the next moment at which silence would be too long: no timer per token."""
        limit_s = idle_s if self.first.done() else first_token_s
        left_s = self._last_s + limit_s - self._clock()
        if left_s <= 0:
            raise SilenceError(not self.first.done(), limit_s)
        waited = self._ended if self.first.done() else self.first
        await asyncio.wait({waited}, timeout=left_s)
