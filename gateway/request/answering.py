"""The decode legs of one prompt on the worker that holds its reservation."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol

from gateway.cluster.client import WorkerLostError
from gateway.cluster.worker import Worker
from gateway.policy.prefix import PrefixKey
from gateway.request.errors import Reason
from gateway.request.failures import PAIR_FAULTS, LegFailure, decode_failure
from gateway.request.holds import ReservationHold, TicketHold
from gateway.request.job import Job
from gateway.request.legs import Leg, Mode, decode_leg
from gateway.request.merge import Merge, MergeError
from gateway.request.observer import Handoff
from gateway.request.pulling import WriterWatch
from gateway.request.running import Running, SilenceError
from proto.fault import FaultError, FaultKind
from proto.ticket import Ticket
from proto.work import SequenceDelta


class Watch(Protocol):
    """What becomes of the first answer: it has given its first token here, its ticket has come, or will not."""

    def began(self, pulled: bool) -> None: ...

    def handed(self, ticket: TicketHold) -> None: ...

    def stays(self) -> None: ...


class Answering:
    """`merges` has one entry an answer. The first pulls the ticket; the others find its KV cached."""

    def __init__(
        self,
        job: Job,
        merges: list[Merge],
        hold: ReservationHold,
        ticket: TicketHold | None,
        prefix: PrefixKey,
        watch: Watch,
    ) -> None:
        self._job = job
        self._merges = merges
        self._hold = hold
        self._worker = hold.worker
        self._ticket = ticket
        self._prefix = prefix
        self._watch = watch
        self._running: dict[int, Running] = {}

    async def run(self, leg: Leg, mode: Mode) -> None:
        """Until every answer has ended. Raises LegFailure; nothing runs in the engine afterwards."""
        try:
            first = self._start(0, leg, mode)
            if len(self._merges) == 1:
                await self._drive(first)
            else:
                await self._drive_all(first, leg, mode)
        finally:
            # A task that is cancelled before its first step never gets to its own `finally`.
            for running in self._running.values():
                running.abort()
        if all(running.finished for running in self._running.values()) and len(self._running) == len(self._merges):
            self._hold.spent()

    @property
    def worker(self) -> Worker:
        return self._worker

    @property
    def begun(self) -> bool:
        """The first answer has given tokens here, and goes on."""
        running = self._running.get(0)
        return running is not None and running.tokens > 0 and not running.over

    def hand_over(self) -> bool:
        """The first answer shall go on elsewhere, from its KV here. False when it has not begun, or is over."""
        return self.begun and self._running[0].hand_over()

    def leave(self) -> bool:
        """The first answer ends here with what it has, to be computed anew elsewhere. False as above."""
        if not self.begun:
            return False
        self._running[0].abort()
        return True

    def stop(self, answer: int) -> None:
        if running := self._running.get(answer):
            running.abort()

    async def _drive_all(self, first: Running, leg: Leg, mode: Mode) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._drive(first))
                # The prompt's KV must be there before others can share it.
                await asyncio.wait({first.first})
                for answer in range(1, len(self._merges)):
                    if first.failed:
                        return
                    if not self._merges[answer].ended:
                        other = replace(leg, answer=answer, work_id=f"{leg.work_id}-{answer}")
                        tasks.create_task(self._drive(self._start(answer, other, mode)))
        except* LegFailure as failures:
            raise _first_leg_failure(failures) from None

    def _start(self, answer: int, leg: Leg, mode: Mode) -> Running:
        with_ticket = self._ticket if answer == 0 else None
        running = Running(
            self._worker,
            self._merges[answer],
            self._job.push,
            lambda delta: self._began(answer, delta),
            self._job.clock,
            self._handed,
            self._watch.stays,
        )
        self._running[answer] = running
        try:
            running.start(
                self._hold.reservation.reservation_id,
                decode_leg(leg, mode),
                with_ticket.ticket if with_ticket else None,
            )
        except (WorkerLostError, FaultError) as error:
            raise self._failure(error) from error
        return running

    async def _drive(self, running: Running) -> None:
        deadlines = self._job.config.deadlines
        ticket = self._ticket if running is self._running.get(0) else None
        try:
            with WriterWatch(ticket.worker, running.writer_lost) if ticket else nullcontext():
                await running.drive(self._job.intent.request_id, deadlines.first_token_s, deadlines.idle_s)
        except (FaultError, WorkerLostError, SilenceError, MergeError) as error:
            self._blame(error)
            raise self._failure(error) from error
        self._hold.answered()
        self._remember(running)

    def _began(self, answer: int, delta: SequenceDelta) -> None:
        """The first news of a sequence: its worker works, and a pull, if there was one, is over."""
        record = self._job.record
        self._worker.health.success("decode")
        record.decode_queue_s = max(record.decode_queue_s, delta.queue_s)
        if answer != 0:
            return
        if self._ticket is None:  # else the prompt was computed by the prefill worker
            record.prefill_compute_s = max(record.prefill_compute_s, delta.compute_s)
        self._tell()
        if self._keeps_prefixes:
            self._worker.has_cached(self._prefix.hashes(self._worker.info.block_size_tokens))
        if self._ticket is not None and self._ticket.held:
            self._handed_off(self._ticket, delta)
        self._watch.began(self._ticket is not None)

    def _handed(self, ticket: Ticket) -> None:
        """From here on the ticket is ours to give back."""
        job = self._job
        cleanups, release_s = job.cluster.cleanups, job.config.deadlines.release_s
        self._watch.handed(TicketHold(self._worker, ticket, job.intent.request_id, cleanups, job.clock, release_s))

    def _tell(self) -> None:
        """The role policy's books."""
        trip = self._hold.trip
        if trip is None:
            return
        if self._ticket is not None:
            trip.moved()
        else:
            trip.prefilled()

    def _handed_off(self, ticket: TicketHold, delta: SequenceDelta) -> None:
        job, record = self._job, self._job.record
        sent = ticket.ticket
        ticket.spent()
        job.cluster.pairs.success(sent.worker_id, self._worker.worker_id)
        record.handoffs += 1
        record.kv_bytes += sent.kv_bytes
        record.transfer_s = max(record.transfer_s, delta.transfer_s)
        pair = job.cluster.pairs.get(sent.worker_id, self._worker.worker_id)
        handoff = Handoff(
            request_id=job.intent.request_id,
            prefill_worker=sent.worker_id,
            decode_worker=self._worker.worker_id,
            transport=pair.transport if pair else record.transport,
            kv_bytes=sent.kv_bytes,
            computed_tokens=sent.computed_tokens,
            transfer_s=delta.transfer_s,
            ticket_age_s=sent.age_s,
        )
        job.observer.handed_off(record, handoff)

    def _remember(self, running: Running) -> None:
        """What was generated is cached there, too: the next turn of a conversation begins with it."""
        if self._keeps_prefixes and running.merge.tokens:
            whole = PrefixKey((*self._prefix.tokens, *running.merge.tokens), self._prefix.salt)
            self._worker.has_cached(whole.hashes(self._worker.info.block_size_tokens))

    @property
    def _keeps_prefixes(self) -> bool:
        """Whether what is cached on a worker could ever matter."""
        routing = self._job.config.routing
        return routing.local_prefill_below_tokens > 0 or routing.fluid is not None

    def _blame(self, error: Exception) -> None:
        health = self._worker.health
        match error:
            case FaultError(fault=fault) if fault.kind in PAIR_FAULTS:
                self._blame_pair(fault.message)
            case FaultError(fault=fault):
                if fault.kind is FaultKind.TICKET_EXPIRED and self._ticket is not None:
                    expired = self._job.observer.ticket_expired
                    expired(self._job.record, self._ticket.worker.worker_id, self._ticket.age_s)
                health.fault("decode", fault.kind, fault.message)
            case MergeError():
                health.fault("decode", FaultKind.INTERNAL, str(error))
            case SilenceError():
                health.deadline_missed(str(error))
                if error.first:
                    self._blame_pair(str(error))

    def _blame_pair(self, message: str) -> None:
        if self._ticket is not None:
            writer = self._ticket.worker.worker_id
            self._job.cluster.pairs.failure(writer, self._worker.worker_id, message)

    def _failure(self, error: Exception) -> LegFailure:
        late = (Reason.IDLE_TIMEOUT, str(error))
        if isinstance(error, SilenceError) and error.first:
            late = (Reason.FIRST_TOKEN_TIMEOUT, str(error))
        failure = decode_failure(error, self._worker.worker_id, late)
        failure.tokens = sum(running.tokens for running in self._running.values())
        return failure


def _first_leg_failure(failures: ExceptionGroup[LegFailure]) -> LegFailure:
    first = failures.exceptions[0]
    return _first_leg_failure(first) if isinstance(first, ExceptionGroup) else first
