"""The writer's side of a hand-off: answers readers."""

from collections.abc import Callable

from engine.simulated.channel import ChannelServer, Connection, Message
from engine.simulated.neighbours import Neighbours
from engine.simulated.pins import Pin, Pins, PinState


class WriterSide:
    """Serves this engine's pins to readers."""

    def __init__(
        self,
        worker_id: str,
        epoch: str,
        pins: Pins,
        now: Callable[[], float],
        admin: Callable[[Message], Message],
        neighbours: Neighbours,
    ) -> None:
        self._worker_id = worker_id
        self._epoch = epoch
        self._pins = pins
        self._now = now
        self._admin = admin
        self._neighbours = neighbours
        self._reads: dict[str, Connection] = {}
        self.server = ChannelServer(self._handle, self._closed)

    @property
    def reading(self) -> int:
        return len(self._reads)

    def _handle(self, message: Message, connection: Connection) -> Message | None:
        operation = message.get("op")
        if operation == "hello":
            return {"ok": True, "worker": self._worker_id, "epoch": self._epoch}
        if operation == "faults":
            return self._admin(message)
        if operation == "busy":
            self._neighbours.heard(connection, busy=bool(message.get("busy")))
            return None
        ticket_id = str(message.get("ticket"))
        found = self._pins.find(ticket_id, str(message.get("epoch")), self._now())
        if not isinstance(found, Pin):
            self._reads.pop(ticket_id, None)
            return {"ok": False, "error": found.value}
        match operation:
            case "renew":
                self._pins.renew(found, self._now())
                return {"ok": True}
            case "open":
                return self._open(found, connection)
            case "done" | "free":
                self._pins.release(ticket_id)
                self._end_read(ticket_id)
                return {"ok": True}
        return {"ok": False, "error": f"unknown operation {operation!r}"}

    def _open(self, pin: Pin, connection: Connection) -> Message:
        pin.state = PinState.READING
        self._pins.renew(pin, self._now())
        self._reads[pin.ticket_id] = connection
        self._tell_shares()
        return {"ok": True, "computed": pin.computed_tokens, "digest": pin.state_digest}

    def _end_read(self, ticket_id: str) -> None:
        if self._reads.pop(ticket_id, None) is not None:
            self._tell_shares()

    def _closed(self, connection: Connection) -> None:
        self._neighbours.gone(connection)
        for ticket_id in [ticket for ticket, reader in self._reads.items() if reader is connection]:
            self._end_read(ticket_id)

    def _tell_shares(self) -> None:
        share = len(self._reads)
        for ticket_id, connection in self._reads.items():
            connection.send({"push": "share", "ticket": ticket_id, "share": share})
