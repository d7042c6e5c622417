"""One gateway's stream: its sequences, from Start to the last delta."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from decode_pool.hold import Hold
from decode_pool.ledger import Ledger
from decode_pool.outbox import Outbox
from decode_pool.pulls import Pull, PullGate
from engine.base import EngineOutput
from engine.dispatcher import Dispatcher, News
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import Ticket
from proto.work import FinishReason, SequenceDelta, Start
from transfer.epochs import Epochs
from transfer.leases import Leases
from transfer.ticket import HeldTicket, objection

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pool:
    """What all streams of a worker share."""

    dispatcher: Dispatcher
    ledger: Ledger
    gate: PullGate
    epochs: Epochs
    clock: Callable[[], float]
    max_model_len: int
    lease_margin_s: float
    leases: Leases


@dataclass(slots=True, eq=False)
class Running:
    """One sequence. `name` is the engine's, empty while it waits for its turn to pull."""

    start: Start
    hold: Hold
    arrived_s: float
    pull: Pull | None = None
    name: str = ""
    waited_s: float = 0.0
    silent: bool = True


@dataclass(slots=True, eq=False)
class Attachment:
    """Implements the dispatcher's Owner; keys are the stream's sequence numbers."""

    gateway_id: str
    pool: Pool
    outbox: Outbox = field(default_factory=Outbox)
    running: dict[int, Running] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def sequences(self) -> int:
        """Sequences that still hold something, those being aborted included."""
        return len(self.running) + len(self._ending)

    def start(self, start: Start) -> None:
        """Runs a sequence, or answers it with a fault before the engine sees it."""
        try:
            fault = self._begin(start)
        except FaultError:
            raise
        except Exception as error:
            # A defect over one sequence must not end the stream of all the others.
            log.exception("sequence %d could not be started", start.sequence)
            self.abort(start.sequence)
            fault = Fault(FaultKind.INTERNAL, f"{type(error).__name__}: {error}")
        if fault is not None:
            self._fault(start.sequence, fault)

    def refuse(self, sequence: int, fault: Fault) -> None:
        """A Start that cannot be understood. Under a number that is in use the answer would be the other's."""
        if sequence in self.running:
            raise FaultError(fault)
        self._fault(sequence, fault)

    def unspeakable(self, sequence: int, error: Exception) -> Fault:
        """What the engine says of a sequence cannot be put on the wire: it ends here, with a fault."""
        log.error("news of sequence %d cannot be encoded: %s", sequence, error)
        self.abort(sequence)
        return Fault(FaultKind.INTERNAL, f"what the engine said of it cannot be sent: {error}")

    def abort(self, sequence: int) -> None:
        """Ends a sequence in any phase; one that has ended, or never was, is a no-op (B-32)."""
        running = self.running.pop(sequence, None)
        if running is not None:
            self._spawn(self._end(running))

    def writer_lost(self, sequence: int, worker_id: str) -> None:
        """Ends a pull that may never end by itself. After the first news the pull is over, and the sequence goes on."""
        running = self.running.get(sequence)
        if running is None or running.pull is None or not running.silent:
            return
        del self.running[sequence]
        self._spawn(self._lose(running, running.pull, worker_id))

    def hand_over(self, sequence: int) -> None:
        """A sequence shall go on elsewhere; one that has ended is nobody's business, one that the engine does not have yet stays."""
        running = self.running.get(sequence)
        if running is not None and not (running.name and self.pool.dispatcher.hand_over(running.name)):
            self.outbox.put(((sequence, SequenceDelta((), stays=True)),))

    async def close(self) -> None:
        """The stream is gone: everything it ran is aborted, and its blocks come back."""
        self.outbox.close()
        for sequence in list(self.running):
            self.abort(sequence)
        while self._ending:
            await asyncio.wait(self._ending)

    def deliver(self, news: News) -> None:
        frame: list[tuple[int, SequenceDelta]] = []
        for sequence, output in news:
            running = self.running.get(sequence)
            if running is None:
                if output.ticket is not None:  # it was aborted as it ended, and nobody will ever read
                    self._spawn(self._free(output.ticket))
                continue
            delta = output.delta
            if running.silent and not delta.stays:
                delta = self._first(running, output)
            running.hold.advance(len(delta.tokens))
            if delta.finish is not None or delta.fault is not None:
                del self.running[sequence]
                if output.ticket is not None:
                    # From here on somebody must free it: the gateway, or its lease.
                    lease = self.pool.leases.issue(output.ticket, running.start.work.request_id, self.pool.clock())
                    delta = replace(delta, ticket=lease.ticket)
                # After a fault the gateway may start the same reservation again, with a new ticket.
                moves = delta.finish is FinishReason.HANDED_OVER
                running.hold.end(returned=delta.fault is not None, moves=moves)
            frame.append((sequence, delta))
        self.outbox.put(tuple(frame))
        self.pool.ledger.tend()

    def _begin(self, start: Start) -> Fault | None:
        pool, work = self.pool, start.work
        if start.sequence in self.running:
            # Whatever is answered now, the gateway would take for news of the other sequence.
            raise FaultError(
                Fault(FaultKind.INVALID_REQUEST, f"sequence {start.sequence} is already running on this stream")
            )
        now = pool.clock()
        held = None if start.ticket is None else HeldTicket(start.ticket, now)
        fault = self._impossible(start) or self._unusable(held, start)
        if fault is not None:
            return fault
        hold = pool.ledger.start(start.reservation_id, self.gateway_id, len(work.tokens))
        if hold is None:
            return Fault(
                FaultKind.RESERVATION_UNKNOWN,
                f"reservation {start.reservation_id!r} is unknown, expired, used up or another gateway's",
            )
        running = self.running[start.sequence] = Running(start, hold, now)
        if held is None:
            self._submit(running, None)
        else:
            # Into the record before the launch, which may happen at once and may fail.
            pull = Pull(pool.gate, lambda: self._launch(running, held))
            running.pull = pull
            pool.gate.enter(pull)
        return None

    def _impossible(self, start: Start) -> Fault | None:
        if self.pool.dispatcher.dead is not None:
            return self.pool.dispatcher.dead
        length, window = len(start.work.tokens), self.pool.max_model_len
        if not 0 < length < window:
            return Fault(
                FaultKind.CONTEXT_LENGTH if length else FaultKind.INVALID_REQUEST,
                f"{length} tokens in a window of {window}",
                {"tokens": length, "max_model_len": window},
            )
        return None

    def _unusable(self, held: HeldTicket | None, start: Start) -> Fault | None:
        if held is None:
            return None
        pool, ticket = self.pool, held.ticket
        newest = pool.epochs.newest(ticket.worker_id, ticket.epoch)
        return objection(held, len(start.work.tokens), pool.clock(), pool.lease_margin_s, newest)

    def _launch(self, running: Running, held: HeldTicket) -> None:
        """The sequence's turn to pull has come; its ticket has aged meanwhile."""
        now = self.pool.clock()
        running.waited_s = now - running.arrived_s
        fault = self._unusable(held, running.start)
        if fault is None:
            self._submit(running, held.sent(now))
        else:
            self._drop(running, fault)

    def _submit(self, running: Running, ticket: Ticket | None) -> None:
        start = running.start
        try:
            running.name = self.pool.dispatcher.submit(start.work, self, start.sequence, pull=ticket)
        except FaultError as error:
            self._drop(running, error.fault)

    def _drop(self, running: Running, fault: Fault) -> None:
        """Nothing ran: the reservation may be used again."""
        if self.running.pop(running.start.sequence, None) is None:
            return
        running.hold.end(returned=True)
        self._fault(running.start.sequence, fault)
        if running.pull is not None:
            running.pull.end()

    def _first(self, running: Running, output: EngineOutput) -> SequenceDelta:
        """The first news of a sequence: its pull is over, and its wait for the pull is part of its queueing."""
        delta = output.delta
        running.silent = False
        if running.pull is not None:
            running.pull.end()
        return replace(delta, queue_s=delta.queue_s + running.waited_s, compute_s=output.compute_s)

    async def _end(self, running: Running) -> None:
        """Frees in this order: the engine's KV, then the promise, so that no block is promised twice."""
        try:
            if not running.name and running.start.ticket is not None:
                self._hand_back(running, running.start.ticket)
            if running.name:
                await self.pool.dispatcher.abort(running.name)
        finally:
            if running.pull is not None:
                running.pull.end()
            running.hold.end(finished=False)

    async def _lose(self, running: Running, pull: Pull, worker_id: str) -> None:
        """The reservation comes back before the fault goes out, so that it can be started again at once."""
        try:
            if running.name:
                await self.pool.dispatcher.abort(running.name)
        finally:
            pull.end()
            running.hold.end(returned=True)
            message = f"worker {worker_id} was lost while its KV was being pulled"
            self._fault(running.start.sequence, Fault(FaultKind.KV_LOAD_FAILED, message))

    async def _free(self, ticket: Ticket) -> None:
        await self.pool.dispatcher.release(ticket.ticket_id)

    def _hand_back(self, running: Running, ticket: Ticket) -> None:
        """Never reached the engine: goes in and out at once, so that the engine tells the writer to free (B-27)."""
        try:
            aged = HeldTicket(ticket, running.arrived_s).sent(self.pool.clock())
            running.name = self.pool.dispatcher.submit(running.start.work, self, running.start.sequence, pull=aged)
        except FaultError:
            return  # then the lease ends by itself

    def _fault(self, sequence: int, fault: Fault) -> None:
        self.outbox.put(((sequence, SequenceDelta((), fault=fault)),))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
