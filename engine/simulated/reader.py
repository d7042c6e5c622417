"""The reader's side of a hand-off: pulls KV from writers."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from engine.simulated.address import Address
from engine.simulated.channel import Message, PeerChannel
from engine.simulated.cost import Link
from engine.simulated.injector import HEALTHY, Afflictions
from engine.simulated.link import SharedLink
from engine.simulated.neighbours import Neighbours
from proto.fault import Fault, FaultError, FaultKind
from proto.ticket import Ticket
from proto.worker import PeerTransfers, Topology, WarmResult
from transfer.links import LinkError, Transport, choose

CALL_TIMEOUT_S = 5.0
_PROBE_BYTES = 1 << 26
#: For a transport that the profile says nothing of.
_PLAIN_LINK = Link(1.2e9, 200e-6)

#: Host and port of a writer.
Peer = tuple[str, int]

_FAULT_OF = {
    "unknown": FaultKind.TICKET_EXPIRED,
    "expired": FaultKind.TICKET_EXPIRED,
    "stale": FaultKind.TICKET_STALE,
}


@dataclass(slots=True)
class Tally:
    transfers: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """What the writer said it holds. `losses`: how often its connection had been lost when it was asked."""

    computed_tokens: int
    state_digest: int
    losses: int


class ReaderSide:
    """Pulls KV from other engines. Times are scaled by `speedup`; failures are FaultErrors."""

    def __init__(
        self, links: Mapping[str, Link], topology: Topology, wanted: str, speedup: float, neighbours: Neighbours
    ) -> None:
        self._links = links
        self._topology = topology
        self._wanted = None if wanted == "auto" else Transport(wanted)
        self._speedup = speedup
        self._neighbours = neighbours
        self._shared: dict[str, SharedLink] = {}
        self._peers: dict[Peer, PeerChannel] = {}
        self._near: set[Peer] = set()  # those on this machine
        self._changed: dict[str, asyncio.Event] = {}
        self._shares: dict[str, int] = {}
        self.tallies: dict[str, Tally] = {}
        self.failed_notifications = 0

    def transfers(self) -> tuple[PeerTransfers, ...]:
        return tuple(
            PeerTransfers(worker, tally.transfers, tally.bytes, tally.seconds, tally.failures)
            for worker, tally in self.tallies.items()
        )

    def transport(self, address: Address) -> tuple[str, Link]:
        """The fastest link that both ends have, unless one is configured."""
        try:
            transport = choose(self._topology, address.topology, self._wanted)
        except LinkError as error:
            raise FaultError(Fault(FaultKind.PAIR_INCOMPATIBLE, str(error))) from None
        return transport.value, self._links.get(transport.value, _PLAIN_LINK)

    async def renew(self, ticket: Ticket, struck: Afflictions = HEALTHY) -> None:
        """Keeps the writer's lease alive while the request waits here."""
        await self._notify(ticket, "renew", struck)

    async def free(self, ticket: Ticket, struck: Afflictions = HEALTHY) -> None:
        """Tells the writer that nobody will read."""
        await self._notify(ticket, "free", struck)

    async def open(self, ticket: Ticket) -> Opened:
        losses = self._peer_of(ticket).losses
        try:
            answer = await self._call(ticket, "open")
        except (OSError, TimeoutError) as error:
            self._tally(ticket).failures += 1
            raise _failed(FaultKind.KV_LOAD_FAILED, ticket, str(error) or "no answer") from None
        if not answer.get("ok"):
            self._tally(ticket).failures += 1
            raise _failed(
                _FAULT_OF.get(str(answer.get("error")), FaultKind.KV_LOAD_FAILED), ticket, answer.get("error")
            )
        return Opened(int(answer["computed"]), int(answer["digest"]), losses)

    async def transfer(self, ticket: Ticket, size_bytes: int, opened: Opened) -> float:
        """Takes the time that moving so much takes, given who else uses the link; returns it.

        Raises when the connection to the writer breaks before the last byte: nobody knows then what has arrived.
        """
        transport, link = self.transport(Address.decode(ticket.engine_params))
        shared = self._shared.setdefault(transport, SharedLink(link.bytes_per_s * self._speedup))
        started = time.monotonic()
        await asyncio.sleep(link.latency_s / self._speedup)
        self._check_unbroken(ticket, opened)
        name = ticket.ticket_id
        changed = self._changed[name] = asyncio.Event()
        shared.add(name, size_bytes, time.monotonic())
        shared.share_with(name, self._shares.pop(name, 1), time.monotonic())
        self._wake_others(name)
        try:
            while (left := shared.left_s(name, time.monotonic())) > 1e-6:
                changed.clear()
                try:
                    async with asyncio.timeout(left):
                        await changed.wait()
                except TimeoutError:
                    pass
                self._check_unbroken(ticket, opened)
        finally:
            shared.remove(name, time.monotonic())
            del self._changed[name]
            self._wake_others(name)
        elapsed = time.monotonic() - started
        tally = self._tally(ticket)
        tally.transfers += 1
        tally.bytes += size_bytes
        tally.seconds += elapsed
        return elapsed

    async def done(self, ticket: Ticket, struck: Afflictions = HEALTHY) -> None:
        """Tells the writer that its KV was read. Raises when the lease ended during the read."""
        answer = await self._notify(ticket, "done", struck)
        if answer is not None and not answer.get("ok"):
            self._tally(ticket).failures += 1
            raise _failed(FaultKind.TICKET_EXPIRED, ticket, "the lease ended while its KV was read")

    async def reset(self, ticket: Ticket) -> None:
        """Breaks the connection to the ticket's writer."""
        await self._peer_of(ticket).close()

    async def warm(self, params: bytes) -> WarmResult:
        started = time.monotonic()
        try:
            address = Address.decode(params)
            transport, link = self.transport(address)
            answer = await self._peer(address).call(CALL_TIMEOUT_S, op="hello")
        except FaultError as error:
            return WarmResult(False, "", 0.0, 0.0, error.fault.message)
        except (OSError, TimeoutError) as error:
            return WarmResult(False, "", 0.0, 0.0, f"hand-shake failed: {error or 'no answer'}")
        if not answer.get("ok"):
            return WarmResult(False, transport, 0.0, 0.0, str(answer.get("error")))
        measured = _PROBE_BYTES / link.transfer_s(_PROBE_BYTES)
        return WarmResult(True, transport, time.monotonic() - started, measured)

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()

    async def _notify(self, ticket: Ticket, message: str, struck: Afflictions) -> Message | None:
        """A message whose loss is made good by the end of the lease: counted, not raised."""
        fault = struck.notification(message)
        if fault is not None and fault.lost:
            self.failed_notifications += 1
            return None
        if fault is not None:
            await asyncio.sleep(fault.delay_s)
        try:
            return await self._call(ticket, message)
        except (OSError, TimeoutError):
            self.failed_notifications += 1
            return None

    def _check_unbroken(self, ticket: Ticket, opened: Opened) -> None:
        if self._peer_of(ticket).losses != opened.losses:
            self._tally(ticket).failures += 1
            raise _failed(FaultKind.KV_LOAD_FAILED, ticket, "the connection broke while it was read")

    def _tally(self, ticket: Ticket) -> Tally:
        return self.tallies.setdefault(ticket.worker_id, Tally())

    def _peer(self, address: Address) -> PeerChannel:
        key = (address.host, address.port)
        if key not in self._peers:
            near = address.topology.host == self._topology.host
            self._peers[key] = PeerChannel(
                address.host, address.port, partial(self._pushed, key, near), partial(self._lost, key)
            )
            self._near |= {key} if near else set()
        return self._peers[key]

    def _peer_of(self, ticket: Ticket) -> PeerChannel:
        return self._peer(Address.decode(ticket.engine_params))

    async def _call(self, ticket: Ticket, operation: str) -> Message:
        return await self._peer_of(ticket).call(
            CALL_TIMEOUT_S, op=operation, ticket=ticket.ticket_id, epoch=ticket.epoch
        )

    def tell_busy(self, busy: bool) -> None:
        """To the writers on this machine."""
        for key in self._near:
            self._peers[key].tell(op="busy", busy=busy)

    def _pushed(self, peer: Peer, near: bool, message: Message) -> None:
        if message.get("push") == "busy":
            self._neighbours.heard(peer, busy=near and bool(message.get("busy")))
            return
        ticket_id, share = str(message.get("ticket")), int(message.get("share", 1))
        event = self._changed.get(ticket_id)
        if event is None:
            self._shares[ticket_id] = share
            while len(self._shares) > 1024:
                del self._shares[next(iter(self._shares))]
            return
        for shared in self._shared.values():
            shared.share_with(ticket_id, share, time.monotonic())
        event.set()

    def _lost(self, peer: Peer) -> None:
        self._neighbours.gone(peer)
        for event in self._changed.values():
            event.set()

    def _wake_others(self, name: str) -> None:
        for other, event in self._changed.items():
            if other != name:
                event.set()


def _failed(kind: FaultKind, ticket: Ticket, why: object) -> FaultError:
    return FaultError(Fault(kind, f"KV of {ticket.ticket_id} on {ticket.worker_id}: {why}"))
