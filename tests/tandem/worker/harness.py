"""Real workers over real gRPC, with the simulated engine behind them, and a gateway of the test's own."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from engine.base import WorkerIdentity
from engine.config import Backend, EngineConfig
from proto import services
from proto.channel import open_channel
from proto.fault import Fault
from proto.reservation import Refusal, ReleaseReservation, Reservation, ReserveRequest
from proto.sampling import Sampling
from proto.ticket import ReleaseTicket, Ticket
from proto.work import Abort, Command, FinishReason, Frame, Hello, PrefillDone, SequenceDelta, Start, Work
from proto.worker import Role, WorkerInfo, WorkerState
from tandem.worker.backend import make_engine
from tandem.worker.config import WorkerConfig
from tandem.worker.worker import Worker, serving
from tests.waiting import HANG_S
from tests.waiting import until as until


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Token ids (letters in the simulated engine's own vocabulary) that share no prefix with another seed's."""
    letters = random.Random(seed).choices(range(97, 123), k=length)
    return tuple(letters)


def work(
    name: str, length: int = 40, max_tokens: int = 8, seed: int = 0, carried: tuple[int, ...] = (), **sampling: Any
) -> Work:
    """Never ends before `max_tokens`."""
    wanted = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, **sampling)
    return Work(name, prompt(length, seed) + carried, wanted)


@dataclass
class Story:
    """Everything one sequence was told."""

    deltas: list[SequenceDelta] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for delta in self.deltas for token in delta.tokens)

    @property
    def finish(self) -> FinishReason | None:
        return self.deltas[-1].finish if self.deltas else None

    @property
    def fault(self) -> Fault | None:
        return self.deltas[-1].fault if self.deltas else None

    async def some(self) -> None:
        """Its first tokens, or an AssertionError with what it was told instead."""
        await until(lambda: self.begun.is_set() or self.ended.is_set())
        assert self.begun.is_set(), self.deltas

    async def end(self) -> "Story":
        await asyncio.wait_for(self.ended.wait(), HANG_S)
        return self


class Stream:
    """An Attach stream."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Command, Frame]) -> None:
        self.call = call
        self.frames: list[Frame] = []
        self.stories: dict[int, Story] = {}
        self.next = 1
        self.error: grpc.aio.AioRpcError | None = None
        self._one_at_a_time = asyncio.Lock()

    async def start(self, reservation: str, work: Work, ticket: Ticket | None = None) -> int:
        sequence, self.next = self.next, self.next + 1
        self.stories[sequence] = Story()
        await self.send(Start(sequence, reservation, work, ticket))
        return sequence

    async def abort(self, sequence: int) -> None:
        await self.send(Abort(sequence))

    async def heard(self) -> None:
        """Returns when the worker has read whatever was sent before, and what it had to say to that at once has come."""
        echo = await self.start("nobody's", work("echo", 1, 1))
        assert (await self.stories[echo].end()).fault is not None

    async def send(self, command: Command) -> None:
        async with self._one_at_a_time:
            await self.call.write(command)

    async def read(self) -> None:
        try:
            async for frame in self.call:
                self.frames.append(frame)
                for sequence, delta in frame:
                    story = self.stories[sequence]
                    story.deltas.append(delta)
                    if delta.tokens:
                        story.begun.set()
                    if delta.ended:
                        story.ended.set()
        except grpc.aio.AioRpcError as error:
            self.error = error


class Client:
    """One gateway's view of one worker."""

    def __init__(self, channel: grpc.aio.Channel, info: WorkerInfo, gateway_id: str) -> None:
        self.channel = channel
        self.info = info
        self.gateway_id = gateway_id
        self.prefill_stub = services.PREFILL.unary(channel)

    async def prefill(self, work: Work) -> PrefillDone:
        done = await self.prefill_stub(work, timeout=HANG_S)
        assert isinstance(done, PrefillDone), done
        return done

    async def refused(self, work: Work) -> Fault:
        fault = await self.prefill_stub(work, timeout=HANG_S)
        assert isinstance(fault, Fault), fault
        return fault

    async def release_ticket(self, ticket: Ticket, epoch: str | None = None) -> bool:
        release = ReleaseTicket(ticket.epoch if epoch is None else epoch, ticket.ticket_id)
        return await services.RELEASE_TICKET.unary(self.channel)(release, timeout=HANG_S)

    async def release_work(self, request_id: str) -> bool:
        return await services.RELEASE_TICKET.unary(self.channel)(
            ReleaseTicket(self.info.epoch, request_id=request_id), timeout=HANG_S
        )

    async def try_reserve(
        self, tokens: int, growth: int, sequences: int = 1, ttl_s: float = 60.0, request_id: str = "r"
    ) -> Reservation | Refusal:
        request = ReserveRequest(self.gateway_id, request_id, tokens, growth, ttl_s, sequences)
        return await services.RESERVE.unary(self.channel)(request, timeout=HANG_S)

    async def reserve(self, tokens: int, growth: int, sequences: int = 1, ttl_s: float = 60.0) -> str:
        reply = await self.try_reserve(tokens, growth, sequences, ttl_s)
        assert isinstance(reply, Reservation), reply
        return reply.reservation_id

    async def refusal(self, tokens: int, growth: int, sequences: int = 1) -> Refusal:
        reply = await self.try_reserve(tokens, growth, sequences)
        assert isinstance(reply, Refusal), reply
        return reply

    async def release_reservation(self, reservation_id: str = "", request_id: str = "") -> bool:
        release = ReleaseReservation(reservation_id, self.gateway_id, request_id)
        return await services.RELEASE_RESERVATION.unary(self.channel)(release, timeout=HANG_S)

    @asynccontextmanager
    async def attached(self, epoch: str | None = None) -> AsyncIterator[Stream]:
        stream = Stream(services.ATTACH.two_way(self.channel)())
        await stream.call.write(Hello(self.gateway_id, self.info.epoch if epoch is None else epoch))
        reader = asyncio.create_task(stream.read())
        try:
            yield stream
        finally:
            stream.call.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    async def state(self) -> WorkerState:
        call = services.WATCH.server_stream(self.channel)(1.0)
        try:
            async for state in call:
                return state
        finally:
            call.cancel()
        raise AssertionError("the worker ended its watch stream")


@dataclass
class Served:
    """A worker in this process, its address, and a client of it."""

    worker: Worker
    address: str
    client: Client

    async def quiet(self, within_s: float = 2.0, ticket_free: bool = True) -> None:
        """Waits until every count is zero, and says which is not; for `within_s` see `until`."""
        await until(lambda: not self.remains(ticket_free), within_s, lambda: str(self.remains(ticket_free)))

    def remains(self, ticket_free: bool = True) -> dict[str, int]:
        worker, stats = self.worker, self.worker.dispatcher.stats()
        counts = {
            "live": worker.dispatcher.live,
            "aborting": worker.dispatcher.aborting,
            "prefills": worker.prefill.in_flight,
            "sequences": worker.decode.sequences,
            "reservations": worker.decode.ledger.reservations,
            "reserved_blocks": worker.decode.ledger.reserved_blocks,
            "pulls": worker.decode.gate.under_way + worker.decode.gate.waiting,
            "running": stats.running,
            "waiting": stats.waiting,
        }
        if ticket_free:
            counts |= {"tickets": stats.tickets_held, "blocks": stats.blocks_used}
        return {name: count for name, count in counts.items() if count}


def config(role: Role = Role.BOTH, worker: dict[str, Any] | None = None, **engine: Any) -> WorkerConfig:
    return WorkerConfig(role=role, engine=EngineConfig(backend=Backend.SIMULATED, **engine), **(worker or {}))


@asynccontextmanager
async def serve(
    role: Role = Role.BOTH,
    *,
    name: str = "",
    gateway_id: str = "g1",
    worker: dict[str, Any] | None = None,
    **engine: Any,
) -> AsyncIterator[Served]:
    """A worker with a simulated engine; keywords go to its EngineConfig."""
    settings = config(role, worker, **engine)
    identity = WorkerIdentity(name or f"w-{uuid.uuid4().hex[:6]}", uuid.uuid4().hex[:8], role)
    core = make_engine(settings.engine, identity)
    try:
        async with (
            serving(settings, core, identity, await core.start()) as (served, address),
            open_channel(address) as channel,
        ):
            yield Served(served, address, Client(channel, served.info, gateway_id))
    finally:
        await core.stop()
