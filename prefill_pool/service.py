"""Prefill: computes a prompt, keeps its KV pinned under a lease, answers with a ticket."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from engine.dispatcher import Dispatcher, News
from engine.duty import Duty
from prefill_pool.leg import Leg, joined
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import ReleaseTicket
from proto.work import FinishReason, PrefillDone, Work
from proto.worker import WorkerInfo
from transfer.leases import Lease, Leases, LeaseState
from transfer.ticket import HeldTicket, blocks_for


class PrefillService:
    """Implements the dispatcher's Owner; keys number the legs in flight."""

    def __init__(self, dispatcher: Dispatcher, duty: Duty, info: WorkerInfo, clock: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._duty = duty
        self._info = info
        self._clock = clock
        self._legs: dict[int, Leg] = {}
        self._next = 0
        self.leases = Leases()

    @property
    def in_flight(self) -> int:
        return len(self._legs)

    async def prefill(self, work: Work) -> PrefillDone | Fault:
        """Cancelling the call stops the engine's work and frees what it held, in any phase."""
        parts: list[PrefillDone] = []
        async with aclosing(self.begin(work)) as replies:
            async for reply in replies:
                if isinstance(reply, Fault):
                    return reply
                parts.append(reply)
        return joined(parts)

    async def begin(self, work: Work) -> AsyncGenerator[PrefillDone | Fault]:
        """The same in parts, as its tokens come: the last has `finish`, unless it is a fault. Closing it early cancels."""
        fault = self._dispatcher.dead or self._duty.prefill_refusal() or self._impossible(work)
        if fault is not None:
            yield fault
            return
        leg, key = Leg(work.request_id), self._next
        self._next += 1
        self._legs[key] = leg
        over = False
        try:
            leg.name = self._dispatcher.submit(work, self, key, hold=True)
            while not leg.ended:
                await leg.news.wait()
                leg.news.clear()
                if not leg.ended:
                    yield leg.part()
            yield self._reply(leg)
            over = True
        except FaultError as error:
            over = True
            yield error.fault
        finally:
            try:
                if not over:
                    await asyncio.shield(asyncio.create_task(self._undo(leg)))
            finally:
                del self._legs[key]  # not before: a ticket that comes meanwhile needs somebody to free it

    async def release(self, release: ReleaseTicket) -> bool:
        """Frees what a ticket pins, or stops the work that would have made one. Releasing twice is harmless."""
        if release.epoch != self._duty.epoch:
            return False
        if not release.ticket_id and await self._stop(release.request_id):
            return True
        lease = self.leases.find(release.ticket_id, release.request_id)
        if lease is not None:
            return await self._free(lease)
        # A reader may have kept the lease alive for longer than it is remembered here.
        return bool(release.ticket_id) and await self._dispatcher.release(release.ticket_id)

    def keep_house(self) -> None:
        """Forgets leases that the engine no longer holds."""
        stats = self._dispatcher.stats()
        self.leases.reconcile(self._clock(), stats.tickets_held, stats.tickets_expired)

    def deliver(self, news: News) -> None:
        for key, output in news:
            leg = self._legs.get(key)
            if leg is not None:
                leg.add(output)
                if output.ticket is not None:
                    # Before anything else can happen: from here on somebody must free it.
                    leg.lease = self.leases.issue(output.ticket, leg.request_id, self._clock())

    def _impossible(self, work: Work) -> Fault | None:
        length, window = len(work.tokens), self._info.max_model_len
        if not length:
            return Fault(FaultKind.INVALID_REQUEST, "the prompt is empty")
        wanted = max(1, work.sampling.max_tokens)
        if length + wanted > window:
            return Fault(
                FaultKind.CONTEXT_LENGTH,
                f"{length} prompt tokens and {wanted} to sample exceed the window of {window} tokens",
                {"prompt_tokens": length, "max_tokens": wanted, "max_model_len": window},
            )
        # The KV of the last token sampled is never computed here.
        needed = blocks_for(length + wanted - 1, self._info.block_size_tokens)
        if needed > self._info.blocks_total:
            return Fault(
                FaultKind.KV_CAPACITY,
                f"{length} prompt tokens need {needed} KV blocks, the worker has {self._info.blocks_total}",
                {"prompt_tokens": length, "blocks_needed": needed, "blocks_total": self._info.blocks_total},
            )
        return None

    def _reply(self, leg: Leg) -> PrefillDone | Fault:
        if leg.fault is not None:
            return leg.fault
        if leg.lease is None and leg.finish is not FinishReason.STOP:
            return Fault(
                FaultKind.HANDOFF_MISSING,
                f"the prefill ended by {leg.finish or 'nothing'} without hand-off parameters",
            )
        done = leg.part()
        if leg.lease is None:
            return done
        return replace(done, ticket=HeldTicket(leg.lease.ticket, leg.lease.issued_s).sent(self._clock()))

    async def _undo(self, leg: Leg) -> None:
        await self._dispatcher.abort(leg.name)
        if leg.lease is not None:
            await self._free(leg.lease)

    async def _stop(self, request_id: str) -> bool:
        """Ends legs in flight for a request whose caller is gone without our noticing."""
        legs = [leg for leg in self._legs.values() if leg.request_id == request_id and not leg.ended]
        for leg in legs:
            leg.cancel(Fault(FaultKind.CANCELLED, "released while it was being computed"))
            await self._dispatcher.abort(leg.name)
        return bool(legs)

    async def _free(self, lease: Lease) -> bool:
        # The state moves first: a second release that comes during the first must find nothing to do.
        if not self.leases.end(lease, LeaseState.RELEASED):
            return False
        freed = await self._dispatcher.release(lease.ticket.ticket_id)
        if not freed:
            self.leases.was_read(lease)
        return freed
