"""Gateways that found no room at a worker. They hear of it when there is some, and none of them keeps the others out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proto.reservation import Refusal, RefusalReason, Reservation

_FOR_WANT_OF_ROOM = frozenset({RefusalReason.KV_BUSY, RefusalReason.SLOTS_BUSY})
#: For so long others leave room to a gateway that was refused. One that still has somebody waiting asks again sooner.
KEPT_S = 0.5
#: Whoever has waited for so long comes before all that began to wait later, however much that takes.
LONG_S = 2.0


def _nobody_listens() -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Want:
    blocks: int
    since_s: float
    until_s: float


class Refused:
    """Those that were refused and have been granted nothing since: they may have somebody waiting. `room` is called
    whenever something came free meanwhile.

    A gateway hears at once of what it has given back itself, and of the rest late: without turns the one that came first
    would take everything anew, for as long as it has requests.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.room: Callable[[], None] = _nobody_listens
        self._clock = clock
        self._gateways: dict[str, _Want] = {}

    def __len__(self) -> int:
        return len(self._gateways)

    def answered(self, gateway_id: str, reply: Reservation | Refusal) -> None:
        if isinstance(reply, Reservation):
            self._gateways.pop(gateway_id, None)
        elif reply.reason in _FOR_WANT_OF_ROOM:
            now_s, before = self._clock(), self._gateways.get(gateway_id)
            since_s = before.since_s if before is not None and before.until_s > now_s else now_s
            self._gateways[gateway_id] = _Want(reply.blocks_needed, since_s, now_s + KEPT_S)

    def others_first(self, gateway_id: str, held: Callable[[], Mapping[str, int]]) -> bool:
        """Whether another one, had it what it was refused, would hold no more than this one does now, or has waited long.
        `held`: blocks of each gateway; asked for only where somebody waits."""
        now_s = self._clock()
        waiting = {each: want for each, want in self._gateways.items() if want.until_s > now_s}
        own = waiting.pop(gateway_id, None)
        if not waiting:
            return False
        long_s = now_s - LONG_S
        if own is not None and own.since_s < long_s:  # whatever it holds, or the two would wait for each other
            return any(want.since_s < own.since_s for want in waiting.values())
        if any(want.since_s < long_s for want in waiting.values()):
            return True
        blocks = held()
        mine = blocks.get(gateway_id, 0)
        return any(blocks.get(other, 0) + want.blocks <= mine for other, want in waiting.items())

    def left(self, gateway_id: str) -> None:
        self._gateways.pop(gateway_id, None)

    def freed(self) -> None:
        if self._gateways:
            self.room()
