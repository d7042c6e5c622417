"""Decode: grants KV before anything is computed, then runs answers over one stream per gateway."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from decode_pool.attachment import Attachment, Pool
from decode_pool.expected import Admission
from decode_pool.ledger import Ledger, Load, Shape
from decode_pool.pulls import PullGate
from decode_pool.refused import Refused
from decode_pool.wire import Malformed, decode_command, encode_frame
from engine.dispatcher import Dispatcher
from engine.duty import Duty
from proto.fault import Fault, FaultError, FaultKind
from proto.reservation import Refusal, RefusalReason, ReleaseReservation, RenewReservation, Reservation, ReserveRequest
from proto.work import Abort, HandOver, Hello, Start, WriterLost
from proto.worker import WorkerInfo
from transfer.epochs import Epochs
from transfer.leases import Leases


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """`max_pulls`: KV pulls under way at once. `lease_margin_s`: tickets with less lease left are not dispatched.

    `abandon_s`: how long unused reservations of a gateway outlive its stream.
    """

    max_pulls: int = 16
    lease_margin_s: float = 0.5
    hello_s: float = 10.0
    abandon_s: float = 10.0
    admission: Admission = field(default_factory=Admission)


_REFUSALS = {
    FaultKind.WRONG_ROLE: RefusalReason.WRONG_ROLE,
    FaultKind.DRAINING: RefusalReason.DRAINING,
    FaultKind.ENGINE_DEAD: RefusalReason.ENGINE_DEAD,
}


class DecodeService:
    """`foreign` tells whether the engine also works for somebody without reservations (a `both` worker's prefill).
    `leases`: where tickets of sequences that are handed over are written down; `Prefill.Release` ends them like any other."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        duty: Duty,
        info: WorkerInfo,
        clock: Callable[[], float],
        limits: DecodeLimits | None = None,
        foreign: Callable[[], bool] = lambda: False,
        leases: Leases | None = None,
    ) -> None:
        self._duty = duty
        self._limits = limits or DecodeLimits()
        self._foreign = foreign
        self.ledger = Ledger(
            Shape(info.blocks_total, info.block_size_tokens, info.max_num_seqs, info.max_model_len),
            clock,
            name=info.epoch,
            admission=self._limits.admission,
        )
        self.refused = Refused(clock)
        self.ledger.charges.freed = self.refused.freed
        self.gate = PullGate(self._limits.max_pulls)
        self.epochs = Epochs()
        self._pool = Pool(
            dispatcher,
            self.ledger,
            self.gate,
            self.epochs,
            clock,
            info.max_model_len,
            self._limits.lease_margin_s,
            Leases() if leases is None else leases,
        )
        self._attachments: list[Attachment] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def attached(self) -> int:
        return len(self._attachments)

    @property
    def sequences(self) -> int:
        return sum(attachment.sequences for attachment in self._attachments)

    @property
    def merged_steps(self) -> int:
        return sum(attachment.outbox.merged_steps for attachment in self._attachments)

    async def reserve(self, request: ReserveRequest) -> Reservation | Refusal:
        dispatcher = self._pool.dispatcher
        refusal = dispatcher.dead or self._duty.decode_refusal()
        load = self.load()
        if refusal is not None:
            return self.ledger.refusal(_REFUSALS[refusal.kind], request, load)
        others_first = self.refused.others_first(request.gateway_id, self._held)
        reply = self.ledger.reserve(request, load, others_first=others_first)
        # An answer that was to move goes on where it is: nobody waits for it. Nor would anybody say that a stranger has left.
        if not request.moves and any(one.gateway_id == request.gateway_id for one in self._attachments):
            self.refused.answered(request.gateway_id, reply)
        return reply

    async def renew(self, renew: RenewReservation) -> bool:
        return self.ledger.renew(renew.reservation_id, renew.gateway_id)

    async def release(self, release: ReleaseReservation) -> bool:
        if release.reservation_id:
            return self.ledger.release(release.reservation_id)
        return self.ledger.release_request(release.gateway_id, release.request_id)

    async def attach(self, commands: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Commands and frames in bytes: one that cannot be understood or encoded ends its own sequence alone."""
        hello = await self._hello(commands)
        attachment = Attachment(hello.gateway_id, self._pool)
        self._attachments.append(attachment)
        self.ledger.adopt(hello.gateway_id)
        reader = asyncio.create_task(self._read(attachment, commands))
        try:
            async for frame in attachment.outbox.frames():
                yield encode_frame(frame, attachment.unspeakable)
            if reader.done():
                reader.result()  # raises what made it stop
        finally:
            reader.cancel()
            await asyncio.shield(self._close(attachment))

    async def close(self) -> None:
        """Ends every stream."""
        for attachment in list(self._attachments):
            attachment.outbox.close()
        while self._closing:
            await asyncio.wait(self._closing)

    def load(self) -> Load:
        """The engine's figures, as the ledger needs them."""
        stats = self._pool.dispatcher.stats()
        return Load(stats.blocks_used, stats.running + stats.waiting, self._foreign(), stats.step_time_s)

    def _held(self) -> Counter[str]:
        """Blocks by gateway."""
        held: Counter[str] = Counter()
        for grant in self.ledger.grants:
            held[grant.request.gateway_id] += grant.blocks
        return held

    async def _hello(self, commands: AsyncIterator[bytes]) -> Hello:
        try:
            async with asyncio.timeout(self._limits.hello_s):
                data = await anext(commands, None)
        except TimeoutError:
            data = None
        first = None if data is None else decode_command(data)
        if not isinstance(first, Hello):
            raise FaultError(Fault(FaultKind.INVALID_REQUEST, "a stream begins with Hello"))
        if first.epoch != self._duty.epoch:
            raise FaultError(
                Fault(
                    FaultKind.TICKET_STALE,
                    f"{self._duty.worker_id} is at epoch {self._duty.epoch}, not {first.epoch!r}: describe it again",
                )
            )
        return first

    async def _read(self, attachment: Attachment, commands: AsyncIterator[bytes]) -> None:
        try:
            async for data in commands:
                match command := decode_command(data):
                    case Start():
                        attachment.start(command)
                    case Abort():
                        attachment.abort(command.sequence)
                    case WriterLost():
                        attachment.writer_lost(command.sequence, command.worker_id)
                    case HandOver():
                        attachment.hand_over(command.sequence)
                    case Malformed():
                        attachment.refuse(command.sequence, command.fault)
                    case Hello():
                        raise FaultError(Fault(FaultKind.INVALID_REQUEST, "Hello comes once"))
        finally:
            attachment.outbox.close()

    def _close(self, attachment: Attachment) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._detach(attachment))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _detach(self, attachment: Attachment) -> None:
        try:
            await attachment.close()
        finally:
            self._attachments.remove(attachment)
            if all(other.gateway_id != attachment.gateway_id for other in self._attachments):
                self.refused.left(attachment.gateway_id)
                self.ledger.abandon(attachment.gateway_id, self._limits.abandon_s)
