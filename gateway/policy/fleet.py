"""The workers that may take a prompt, and the room that they have. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from gateway.policy.distance import Distance
from gateway.policy.need import Need
from proto.worker import Role

#: Fastest first; a transport that is not named here comes last.
LINK_RANK: dict[str, int] = {"nvlink": 0, "rdma": 1, "shm": 2, "tcp": 3}


@dataclass(frozen=True, slots=True)
class DecodeCandidate:
    """A decode worker that may take work. `closed` says that it has just refused and nothing has changed since.

    `headroom_blocks`: what the growth of everything promised there leaves, by the worker's own forecast (R-41); None
    where it is not known. `asked`: somebody is being asked there for a place now. `kv_tokens`: the engine's whole KV,
    where that is not what `blocks_total` says; `engine_slots` likewise. `slots_free`: places in its batch that nobody has been
    promised; None where that is not known. `placed`: it says on which node or in which rack it is.
    """

    worker_id: str
    role: Role
    window: int
    block_size_tokens: int
    blocks_total: int
    blocks_free: int
    slots_total: int
    cached_tokens: int = 0
    closed: bool = False
    headroom_blocks: float | None = None
    asked: bool = False
    pool_blocks: int = 0
    kv_tokens: int = 0
    engine_slots: int = 0
    slots_free: int | None = None
    placed: bool = False

    def could_ever(self, need: Need) -> bool:
        if need.answers > self.slots_total:
            return False
        return need.longest_tokens <= self.window and need.blocks(self.block_size_tokens) <= self.blocks_total

    def free_after(self, need: Need) -> float:
        """Blocks left after growth: of the forecast, if the need is one, else of what is not reserved."""
        if need.likely_tokens and self.headroom_blocks is not None:
            return self.headroom_blocks - need.likely_blocks(self.block_size_tokens)
        return self.unreserved_after(need)

    def share_after(self, need: Need) -> float:
        """The same of its whole KV."""
        return self.free_after(need) / max(1, self.blocks_total)

    def unreserved_after(self, need: Need) -> float:
        """Blocks left of what is not reserved, whatever the forecast says."""
        return self.blocks_free - need.likely_blocks(self.block_size_tokens)

    def fits(self, need: Need) -> bool:
        """Whether to ask. The worker alone knows when answers will peak together: where its room seems too small for a
        likely growth, but not for the start, it is asked all the same, for one prompt at a time. An empty one lends its
        emergency pool to what needs nearly all of it: waiting would not make that smaller.

        Places in its batch are counted here, too: were everybody asked for who waits, each that comes free would go to the
        next request of one answer, and those of several would never have theirs."""
        if self.slots_free is not None and need.answers > self.slots_free:
            return False
        if self.free_after(need) >= 0:
            return True
        if not need.likely_tokens or self.asked or self.headroom_blocks is None:
            return False
        empty = self.blocks_free >= self.blocks_total
        room = self.blocks_free if empty else min(self.headroom_blocks, self.blocks_free)
        return room >= need.start_blocks(self.block_size_tokens)


@dataclass(frozen=True, slots=True)
class PrefillCandidate:
    """A prefill worker that may take work; `outstanding_tokens` are the prompts in its hands."""

    worker_id: str
    role: Role
    outstanding_tokens: int
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A usable pair, seen from the decode worker. `bytes_per_s` 0 means not measured."""

    transport: str
    bytes_per_s: float = 0.0
    distance: Distance = Distance.APART

    @property
    def rank(self) -> int:
        return LINK_RANK.get(self.transport, len(LINK_RANK))


#: prefill worker id -> its link to one decode worker
Links = Mapping[str, Link]


@dataclass(frozen=True, slots=True)
class Room:
    """The share of their KV that is free now, of all decode workers. `told`: by their forecasts. `sizes`: tokens of a
    block, as they occur; `most_blocks`: of the largest worker."""

    shares: list[float]
    told: bool
    sizes: frozenset[int]
    most_blocks: int

    @classmethod
    def of(cls, decodes: tuple[DecodeCandidate, ...], *, forecast: bool) -> "Room | None":
        """By what forecasts leave, or by what is not reserved. None where some have told theirs and others have not."""
        told = [one.headroom_blocks for one in decodes] if forecast else [None]
        if None not in told:
            rooms = cast(list[float], told)
        elif told.count(None) < len(told):
            return None
        else:
            rooms = [float(one.blocks_free) for one in decodes]
        totals = [one.blocks_total for one in decodes]
        shares = [room / (total or 1) for room, total in zip(rooms, totals, strict=True)]
        return cls(shares, None not in told, frozenset([one.block_size_tokens for one in decodes]), max(totals))

    def but(self, before: tuple[DecodeCandidate, ...], changed: Mapping[int, DecodeCandidate]) -> "Room | None":
        """With others in some places, where `before` were; None where more than their own shares may be different."""
        shares = self.shares.copy()
        for at, one in changed.items():
            was, headroom = before[at], one.headroom_blocks
            if one.blocks_total != was.blocks_total or one.block_size_tokens != was.block_size_tokens:
                return None
            if (headroom is None) != (was.headroom_blocks is None):
                return None
            free = headroom if self.told and headroom is not None else one.blocks_free
            shares[at] = free / (one.blocks_total or 1)
        return Room(shares, self.told, self.sizes, self.most_blocks)

    def least_share(self, need: Need) -> float:
        """What the need takes of any of them, at least."""
        return min([need.likely_blocks(size) for size in self.sizes]) / max(1, self.most_blocks)

    def first(self) -> int:
        """The place of the one with the most."""
        return self.shares.index(max(self.shares))

    def alone(self, share: float) -> bool:
        """Whether just one has so much."""
        return len([each for each in self.shares if each >= share]) == 1

    def down_to(self, share: float) -> list[int]:
        """The places of all that have so much, the most first."""
        found = [at for at, each in enumerate(self.shares) if each >= share]
        return sorted(found, key=self.shares.__getitem__, reverse=True) if len(found) > 1 else found


@dataclass(slots=True)
class _Known:
    """What is found out of a fleet when it is first asked for."""

    dedicated: bool | None = None
    rooms: dict[bool, Room | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that may take new work now. `links` has one entry a decode worker with any usable pair."""

    decodes: tuple[DecodeCandidate, ...]
    prefills: tuple[PrefillCandidate, ...]
    links: Mapping[str, Links]
    _known: _Known = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", _Known())

    def but(
        self, changed: Mapping[int, DecodeCandidate], prefills: tuple[PrefillCandidate, ...] | None = None
    ) -> "Fleet":
        """With other decode workers in some places. What is known of the rest is not found out again."""
        decodes, known = list(self.decodes), self._known
        for at, decode in changed.items():
            decodes[at] = decode
        other = Fleet(tuple(decodes), self.prefills if prefills is None else prefills, self.links)
        if prefills is None:
            other._known.dedicated = known.dedicated
        for forecast, room in known.rooms.items():
            if room is not None and (kept := room.but(self.decodes, changed)) is not None:
                other._known.rooms[forecast] = kept
        return other

    @property
    def dedicated(self) -> bool:
        """Whether any worker does nothing but prefill."""
        known = self._known
        if known.dedicated is None:
            known.dedicated = Role.PREFILL in [worker.role for worker in self.prefills]
        return known.dedicated

    def room(self, *, forecast: bool) -> Room | None:
        """What room the decode workers have; None where some have told their forecast and others have not."""
        rooms = self._known.rooms
        if forecast not in rooms:
            rooms[forecast] = Room.of(self.decodes, forecast=forecast)
        return rooms[forecast]

    def partners(self, decode_worker: str) -> list[PrefillCandidate]:
        links = self.links.get(decode_worker, {})
        return [worker for worker in self.prefills if worker.worker_id in links and worker.worker_id != decode_worker]
