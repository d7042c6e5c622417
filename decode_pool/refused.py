"""Gateways that found no room at a worker. They hear of it when there is some, and not only with the next state."""

from collections.abc import Callable

from proto.reservation import Refusal, RefusalReason, Reservation

_FOR_WANT_OF_ROOM = frozenset({RefusalReason.KV_BUSY, RefusalReason.SLOTS_BUSY})


def _nobody_listens() -> None:
    pass


class Refused:
    """Those that were refused and have been granted nothing since: they may have somebody waiting. `room` is called
    whenever something came free meanwhile.
    """

    def __init__(self) -> None:
        self.room: Callable[[], None] = _nobody_listens
        self._gateways: set[str] = set()

    def __len__(self) -> int:
        return len(self._gateways)

    def answered(self, gateway_id: str, reply: Reservation | Refusal) -> None:
        if isinstance(reply, Reservation):
            self._gateways.discard(gateway_id)
        elif reply.reason in _FOR_WANT_OF_ROOM:
            self._gateways.add(gateway_id)

    def left(self, gateway_id: str) -> None:
        self._gateways.discard(gateway_id)

    def freed(self) -> None:
        if self._gateways:
            self.room()
