"""The reservations of one worker by name, and which of them nobody uses."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from decode_pool.grant import Grant
from transfer.ticket import blocks_for


@dataclass(slots=True)
class Grants:
    """`unused` are those under which nothing runs: they end with time, or soon after their gateway has gone."""

    _all: dict[str, Grant] = field(default_factory=dict)
    _unused: dict[str, Grant] = field(default_factory=dict)
    _abandoned: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._all.values())

    def __contains__(self, grant: Grant) -> bool:
        return grant.reservation_id in self._all

    @property
    def live(self) -> int:
        """Sequences that run."""
        return sum([len(grant.live) for grant in self])

    def filled_blocks(self, size_tokens: int) -> int:
        """What they fill, the block of the token to come included."""
        blocks = 0
        for grant in self:
            if grant.live:
                filled = [max(0, blocks_for(hold.tokens + 1, size_tokens) - grant.shared) for hold in grant.live]
                blocks += grant.shared + sum(filled)
        return blocks

    def named(self, reservation_id: str, gateway_id: str | None = None) -> Grant | None:
        """Of this gateway, where one is given."""
        grant = self._all.get(reservation_id)
        if grant is not None and gateway_id is not None and grant.request.gateway_id != gateway_id:
            return None
        return grant

    def of_request(self, gateway_id: str, request_id: str) -> list[Grant]:
        asked = gateway_id, request_id
        return [grant for grant in self if (grant.request.gateway_id, grant.request.request_id) == asked]

    def add(self, grant: Grant) -> None:
        self._all[grant.reservation_id] = self._unused[grant.reservation_id] = grant

    def remove(self, grant: Grant) -> bool:
        """False when it was not here."""
        self._unused.pop(grant.reservation_id, None)
        return self._all.pop(grant.reservation_id, None) is not None

    def noted(self, grant: Grant) -> None:
        """Something has begun or ended under it."""
        if grant.live:
            self._unused.pop(grant.reservation_id, None)
        else:
            self._unused[grant.reservation_id] = grant

    def abandon(self, gateway_id: str, until_s: float) -> None:
        """The gateway's unused ones end then, unless it is back."""
        self._abandoned[gateway_id] = until_s

    def adopt(self, gateway_id: str) -> None:
        self._abandoned.pop(gateway_id, None)

    def late(self, now_s: float) -> list[Grant]:
        """Unused and past their time; asked once."""
        gone = {gateway_id for gateway_id, until_s in self._abandoned.items() if until_s <= now_s}
        for gateway_id in gone:
            del self._abandoned[gateway_id]
        return [each for each in self._unused.values() if each.expires_s <= now_s or each.request.gateway_id in gone]
