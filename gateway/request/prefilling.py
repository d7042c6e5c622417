"""One prefill leg on one worker: the call, its deadline, and what it leaves behind."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from gateway.cluster.client import WorkerLostError
from gateway.cluster.leases import LeaseKind
from gateway.cluster.worker import Worker
from gateway.request.errors import Reason
from gateway.request.failures import LegFailure, prefill_failure
from gateway.request.holds import ReservationHold, TicketHold, tell
from gateway.request.job import Job
from gateway.request.legs import Mode
from gateway.request.merge import MergeError
from gateway.request.phase import Phase
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import ReleaseTicket
from proto.work import PrefillDone, Work


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A finished prefill leg. Leaving its context releases the ticket, unless a decode worker has read it."""

    done: PrefillDone
    mode: Mode
    held: TicketHold | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        if self.held is not None:
            self.held.release()


async def prefill(job: Job, worker: Worker, work: Work, mode: Mode) -> Prefilled:
    """Raises LegFailure. Cancelled or late, it stops the engine's work and frees whatever that left pinned."""
    deadline_s = job.config.deadlines.prefill_s
    lease = worker.leases.take(LeaseKind.PREFILL, job.intent.request_id, ttl_s=2 * deadline_s, tokens=len(work.tokens))
    answered = False
    try:
        if worker.connection is None:
            raise WorkerLostError(worker.health.reason)
        done = await worker.connection.client.prefill(work, deadline_s)
        answered = True
    except (FaultError, WorkerLostError, TimeoutError) as error:
        # INTERNAL may also be a reply that was lost on its way: releasing what is not there is harmless.
        answered = isinstance(error, FaultError) and error.fault.kind is not FaultKind.INTERNAL
        _blame(worker, error)
        raise prefill_failure(error, worker.worker_id, deadline_s) from error
    finally:
        worker.leases.give_back(lease)
        if not answered:
            _release_by_name(job, worker, work)
    return _account(job, worker, work, mode, done)


async def begin(job: Job, worker: Worker, work: Work, show: Callable[[PrefillDone], None]) -> Prefilled:
    """A prefill leg that gives the first tokens of the answer, too: `show` gets them as they come. Otherwise as `prefill`.

    The first has the time of a prefill, each other that between two tokens. `done` of what is returned is the last part.
    """
    deadlines = job.config.deadlines
    lease = worker.leases.take(LeaseKind.PREFILL, job.intent.request_id, ttl_s=float("inf"), tokens=len(work.tokens))
    limit_s, last, answered = deadlines.prefill_s, None, False
    try:
        if worker.connection is None:
            raise WorkerLostError(worker.health.reason)
        async with aclosing(worker.connection.client.begin(work)) as parts:
            while True:
                async with asyncio.timeout(limit_s):
                    part = await anext(parts, None)
                if part is None:
                    break
                if last is None:
                    _measure(job, worker, work, part)
                limit_s, last = deadlines.idle_s, part
                worker.leases.computed(lease)
                show(part)
        if last is None or last.finish is None:
            raise FaultError(Fault(FaultKind.INTERNAL, "the leg ended in the middle"))
        answered = True
    except (FaultError, WorkerLostError, TimeoutError, MergeError) as error:
        if isinstance(error, MergeError):
            worker.health.fault("prefill", FaultKind.INTERNAL, str(error))
        else:
            _blame(worker, error)
        raise prefill_failure(error, worker.worker_id, limit_s) from error
    finally:
        worker.leases.give_back(lease)
        if not answered:
            _release_by_name(job, worker, work)
    worker.health.success("prefill")
    return Prefilled(last, Mode.CARRY, _ticket_hold(job, worker, last))


async def while_reserved(
    hold: ReservationHold, work: Coroutine[Any, Any, Prefilled], enough: asyncio.Future[None]
) -> Prefilled | None:
    """Runs a prefill for as long as there is a place for its KV (invariant 1), and keeps that place (B-39).

    None when it is `enough`: nobody wants more of the answer. Raises LegFailure: the prefill's own, or one of the decode
    worker when that is lost or has ended the reservation.
    """
    decode = hold.worker
    if decode.connection is not None:
        leg = asyncio.create_task(work, name="request-prefill")
        lapsed = asyncio.create_task(hold.lapsed(), name="request-renewals")
        try:
            either: set[asyncio.Future[Any]] = {leg, lapsed, decode.connection.attachment.ended, enough}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _abandon(leg)
            raise
        finally:
            lapsed.cancel()
        if leg.done():
            return leg.result()
        _abandon(leg)
        if enough.done():
            return None
        if lapsed.done() and not lapsed.cancelled():
            lapsed.result()
            message = f"{decode.worker_id} has ended the reservation of a prompt that was being computed for it"
            fault = Fault(FaultKind.RESERVATION_UNKNOWN, message)
            raise LegFailure(Phase.DECODING, Reason.DECODE_FAILED, message, decode.worker_id, fault)
    else:
        work.close()
    message = f"worker {decode.worker_id} was lost while a prompt was computed for it: {decode.health.reason}"
    raise LegFailure(Phase.DECODING, Reason.WORKER_LOST, message, decode.worker_id)


def _abandon(leg: asyncio.Task[Prefilled]) -> None:
    """Nobody reads the outcome: the leg is stopped, and a ticket that it has just got is given back."""
    leg.cancel()
    leg.add_done_callback(_give_back)


def _give_back(leg: asyncio.Task[Prefilled]) -> None:
    if not leg.cancelled() and leg.exception() is None:
        leg.result().release()


def _account(job: Job, worker: Worker, work: Work, mode: Mode, done: PrefillDone) -> Prefilled:
    held = _ticket_hold(job, worker, done)
    worker.health.success("prefill")
    _measure(job, worker, work, done)
    return Prefilled(done, mode, held)


def _ticket_hold(job: Job, worker: Worker, done: PrefillDone) -> TicketHold | None:
    if done.ticket is None:
        return None
    cleanups, release_s = job.cluster.cleanups, job.config.deadlines.release_s
    return TicketHold(worker, done.ticket, job.intent.request_id, cleanups, job.clock, release_s)


def _measure(job: Job, worker: Worker, work: Work, done: PrefillDone) -> None:
    record = job.record
    worker.prefilled(len(work.tokens) - done.cached_tokens, done.compute_s)
    record.prefill_queue_s = max(record.prefill_queue_s, done.queue_s)
    record.prefill_compute_s = max(record.prefill_compute_s, done.compute_s)


def _blame(worker: Worker, error: Exception) -> None:
    if isinstance(error, FaultError):
        worker.health.fault("prefill", error.fault.kind, error.fault.message)
    elif isinstance(error, TimeoutError):
        worker.health.deadline_missed("a prefill missed its deadline")


def _release_by_name(job: Job, worker: Worker, work: Work) -> None:
    """The reply, if there was one, is lost: the worker knows the ticket by the work that made it."""
    release = ReleaseTicket(worker.info.epoch, request_id=work.request_id)
    timeout_s = job.config.deadlines.release_s
    tell(
        worker,
        lambda client: client.release_ticket(release, timeout_s),
        job.cluster.cleanups,
        f"release of prefill {work.request_id}",
    )
