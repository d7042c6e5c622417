"""Hand-off of this engine: what it keeps for readers, and what it fetches from writers."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from engine.simulated import faults
from engine.simulated.address import Address
from engine.simulated.channel import Message
from engine.simulated.faults import FaultScriptError, Phase, parse_script
from engine.simulated.generation import Generation
from engine.simulated.injector import Injector
from engine.simulated.neighbours import Neighbours
from engine.simulated.pins import Pin, Pins
from engine.simulated.reader import ReaderSide
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence
from engine.simulated.setup import Setup
from engine.simulated.tokens import digest, scramble
from engine.simulated.writer import WriterSide
from proto.fault import Fault, FaultError
from proto.ticket import Ticket

_SHORTEST_NAP_S = 0.005
_LONGEST_NAP_S = 0.25


class Handoff:
    """Both sides. `wake` tells the engine that there may be something to schedule, `fail` ends a request."""

    def __init__(
        self,
        setup: Setup,
        scheduler: Scheduler,
        injector: Injector,
        wake: Callable[[], None],
        fail: Callable[[Generation, Fault], None],
    ) -> None:
        self._setup = setup
        self._scheduler = scheduler
        self._injector = injector
        self._wake = wake
        self._fail = fail
        config, identity = setup.config, setup.identity
        self.pins = Pins(identity.epoch, config.kv_lease_s, self._free)
        self.neighbours = Neighbours(setup.profile.sharing)
        self._writer = WriterSide(
            identity.worker_id, identity.epoch, self.pins, injector.now, self._admin, self.neighbours
        )
        self.reader = ReaderSide(
            setup.profile.links, setup.topology, config.link.value, config.speedup, self.neighbours
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._queued: dict[Generation, float] = {}  # pulls that have not begun, and when their lease is renewed

    async def start(self) -> None:
        await self._writer.server.start(self._setup.config.kv_host)
        self.spawn(self._keep_leases())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.reader.close()
        await self._writer.server.stop()

    def die(self) -> None:
        """Readers find nobody, in the middle of a pull too."""
        self._writer.server.die()

    @property
    def address(self) -> Address:
        return Address(self._setup.config.kv_host, self._writer.server.port, self._setup.topology)

    def tell_busy(self, busy: bool) -> None:
        """To the engines that share this one's cores, where that matters."""
        if self.neighbours.matter:
            self.reader.tell_busy(busy)
            self._writer.server.push({"push": "busy", "busy": busy})

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # the writer's side

    def pin(self, generation: Generation) -> Ticket | None:
        """Keeps the KV of a request that has ended; its ticket, unless a fault script loses it."""
        setup, sequence, struck = self._setup, generation.sequence, generation.struck
        computed, size = sequence.computed, setup.limits.block_size
        blocks = -(-computed // size)
        early = struck.find(faults.EarlyExpiry)
        lease_s = setup.config.kv_lease_s if early is None else early.after_s
        ticket = Ticket(
            ticket_id=f"{setup.identity.worker_id}-{uuid.uuid4().hex}",
            worker_id=setup.identity.worker_id,
            epoch=setup.identity.epoch,
            engine_params=self.address.encode(),
            computed_tokens=computed,
            blocks=blocks,
            block_size_tokens=size,
            kv_bytes=blocks * size * setup.profile.kv_bytes_per_token,
            lease_s=setup.config.kv_lease_s,
        )
        content = digest(generation.tokens[:computed])
        self.pins.pin(
            Pin(ticket.ticket_id, sequence, computed, blocks, content, self._injector.now() + lease_s, early is None)
        )
        return self._injector.ticket(ticket, struck)

    def release(self, ticket_id: str) -> bool:
        return self.pins.release(ticket_id)

    def _free(self, sequence: Sequence) -> None:
        self._scheduler.free_blocks(sequence)
        self._wake()

    async def _keep_leases(self) -> None:
        """Ends the leases that are over here, and renews those at writers whose readers wait here."""
        while True:
            now = self._injector.now()
            self.pins.expire(now)
            for generation, due in list(self._queued.items()):
                if generation.pull is None or generation.loading or generation.aborted:
                    del self._queued[generation]
                elif due <= time.monotonic():
                    self._queue(generation, generation.pull)
                    self.spawn(self.reader.renew(generation.pull, generation.struck))
            renewal = min(self._queued.values(), default=float("inf")) - time.monotonic()
            expiry = (self.pins.next_deadline_s() or float("inf")) - self._injector.now()
            await asyncio.sleep(max(_SHORTEST_NAP_S, min(_LONGEST_NAP_S, renewal, expiry)))

    def _queue(self, generation: Generation, ticket: Ticket) -> None:
        self._queued[generation] = time.monotonic() + ticket.lease_s / 3

    def _admin(self, message: Message) -> Message:
        """Replaces the fault script from outside; only where one is configured, so never by accident."""
        if not self._setup.config.faults:
            return {"ok": False, "error": "fault scripts are off; start the worker with one"}
        try:
            self._injector.use(parse_script(str(message.get("script", ""))))
        except FaultScriptError as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True}

    # the reader's side

    def keep_lease(self, generation: Generation) -> None:
        """While the request waits here, the writer's lease is renewed."""
        if generation.pull is not None:
            self._queue(generation, generation.pull)

    def start_pull(self, generation: Generation) -> None:
        assert generation.pull is not None
        generation.loading = True
        self.spawn(self._pull(generation, generation.pull))

    def decline(self, generation: Generation) -> None:
        """Nothing was or will be read; the writer must know."""
        if generation.pull is not None and not generation.loading:
            generation.loading = True
            self.spawn(self.reader.free(generation.pull, generation.struck))

    async def _pull(self, generation: Generation, ticket: Ticket) -> None:
        """Reads what the cache does not have; however it goes, the blocks end with somebody."""
        sequence, struck, reader = generation.sequence, generation.struck, self.reader
        started = time.monotonic()
        try:
            opened = await reader.open(ticket)
            if struck.find(faults.Reset):
                await reader.reset(ticket)
            await self._injector.pass_hang(struck.hang(Phase.TRANSFER))
            if not generation.aborted:
                await reader.transfer(ticket, self._bytes_to_read(sequence), opened)
            await reader.done(ticket, struck)
        except FaultError as error:
            if generation.aborted:
                self._free(sequence)
            else:
                self._fail(generation, error.fault)
            return
        if generation.aborted:
            self._free(sequence)
            return
        generation.transfer_s = time.monotonic() - started
        # What was read decides how the answer goes on: foreign KV gives a foreign answer.
        content = scramble(opened.state_digest) & 0xFFFFFFFF if struck.find(faults.ForeignKv) else opened.state_digest
        generation.stream.state = digest(generation.work.tokens[opened.computed_tokens :], content)
        self._scheduler.loaded(sequence)
        self._wake()

    def _bytes_to_read(self, sequence: Sequence) -> int:
        return sequence.plain * self._setup.limits.block_size * self._setup.profile.kv_bytes_per_token
