"""A probe that really reaches the engine: one token through every leg that the worker's role has (B-43)."""

import asyncio
from dataclasses import dataclass
from itertools import count

from gateway.cluster.worker import Connection, Worker
from proto.fault import REQUEST_FAULTS, Fault, FaultError, FaultKind
from proto.reservation import Refusal, RefusalReason, ReleaseReservation, ReserveRequest
from proto.sampling import Sampling
from proto.ticket import ReleaseTicket
from proto.work import SequenceDelta, Work

#: Answers that come from a worker which is alive, if busy.
_ALIVE = REQUEST_FAULTS | {FaultKind.OVERLOADED, FaultKind.DRAINING, FaultKind.WRONG_ROLE}
_SAMPLING = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
_numbers = count(1)


class ProbeError(Exception):
    """The worker answers, but does not work."""


class _Outcome:
    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def feed(self, delta: SequenceDelta) -> None:
        if self.done.done() or not delta.ended:
            return
        if delta.fault is not None and delta.fault.kind not in _ALIVE:
            self.done.set_exception(FaultError(delta.fault))
        else:
            self.done.set_result(None)

    def lost(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(ProbeError(reason))


@dataclass(frozen=True, slots=True)
class Probe:
    """`deadline_s` bounds the whole probe; what it held is given back whatever happens."""

    gateway_id: str
    deadline_s: float
    release_s: float

    async def __call__(self, worker: Worker) -> None:
        """Raises what went wrong; returns when every leg of the role gave its token."""
        connection = worker.connection
        if connection is None:
            raise ProbeError("not connected")
        async with asyncio.timeout(self.deadline_s):
            if worker.role.prefills:
                await self._prefill(worker, connection)
            if worker.role.decodes:
                await self._decode(connection)

    def _work(self, leg: str) -> Work:
        return Work(f"probe-{self.gateway_id}-{leg}-{next(_numbers)}", (1, 1), _SAMPLING)

    async def _prefill(self, worker: Worker, connection: Connection) -> None:
        work = self._work("prefill")
        try:
            await connection.client.prefill(work, self.deadline_s)
        except FaultError as error:
            _raise_if_broken(error.fault)
        finally:
            await connection.client.release_ticket(
                ReleaseTicket(worker.info.epoch, request_id=work.request_id), self.release_s
            )

    async def _decode(self, connection: Connection) -> None:
        work = self._work("decode")
        request = ReserveRequest(self.gateway_id, work.request_id, len(work.tokens), 1, self.deadline_s)
        reply = await connection.client.reserve(request, self.deadline_s)
        if isinstance(reply, Refusal):
            if reply.reason is RefusalReason.ENGINE_DEAD:
                raise ProbeError("the engine is dead")
            return
        outcome = _Outcome()
        sequence = connection.attachment.start(reply.reservation_id, work, None, outcome)
        try:
            await outcome.done
        finally:
            connection.attachment.abort(sequence)
            await connection.client.release_reservation(ReleaseReservation(reply.reservation_id), self.release_s)


def _raise_if_broken(fault: Fault) -> None:
    if fault.kind not in _ALIVE:
        raise FaultError(fault)
