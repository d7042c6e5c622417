"""Which worker decodes a prompt, and whether it is handed off. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from gateway.config import RoutingConfig
from gateway.policy.fleet import (
    LINK_RANK,
    DecodeCandidate,
    Fleet,
    Link,
    Links,
    PrefillCandidate,
    Room,
)
from gateway.policy.need import Need
from gateway.policy.prefill_choice import away, in_turn
from proto.worker import Role

__all__ = [
    "LINK_RANK",
    "Dead",
    "DecodeCandidate",
    "Fleet",
    "Link",
    "Links",
    "NoRoute",
    "Outlook",
    "Path",
    "Place",
    "Placement",
    "PrefillCandidate",
    "Rules",
    "Wait",
    "Way",
    "able_to_decode",
    "choose_path",
    "place",
]

#: What two ways to compute the same share may differ by.
_ROUNDING = 1e-9
#: Workers with so much less of their KV free, as a share, have about as much: the nearest is then taken.
ALIKE = 0.02


class Path(StrEnum):
    REMOTE = "remote"  # prefill elsewhere, hand over the KV
    LOCAL = "local"  # a decode worker computes this prompt itself
    COLOCATED = "colocated"  # a worker whose role is both does everything


@dataclass(frozen=True, slots=True)
class Rules:
    """`prefill_here_if_none`: an explicit policy, never a silent default (B-40)."""

    local_below_tokens: int
    prefill_here_if_none: bool

    @classmethod
    def of(cls, config: RoutingConfig) -> "Rules":
        return cls(config.local_prefill_below_tokens, config.decode_may_prefill)


@dataclass(frozen=True, slots=True)
class Way:
    """One way for a prompt, as it was weighed: where it is decoded and computed, and after how many tokens of the answer
    it is handed over (0: never). `load` is what it is chosen by, the less the better; times are predictions in s; `room_share`:
    of the KV of who decodes, or of its places in the batch where that is more."""

    worker_id: str
    computed_by: str
    first_tokens: int
    load: float
    first_token_s: float
    step_s: float
    room_share: float


@dataclass(frozen=True, slots=True)
class Placement:
    """`also`: where the other prompts of the same request go, in their order. `prefill_id`: who computes the prompt, where
    that is decided already; else it is chosen when the prompt is sent. `first_tokens`: of the answer, that come before
    the hand-off; 0 where the configuration says how many. `ways`: what it was chosen from, where ways are weighed.
    """

    worker_id: str
    path: Path
    reason: str
    also: tuple["Placement", ...] = ()
    prefill_id: str = ""
    first_tokens: int = 0
    ways: tuple[Way, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody could take it, but not now."""

    blocks_needed: int
    blocks_free: int
    blocks_total: int


class Dead(StrEnum):
    """Why waiting would not help."""

    NO_DECODE = "no_decode"
    NO_PREFILL = "no_prefill"
    NEVER_FITS = "never_fits"
    TOO_LONG = "too_long"
    TOGETHER = "together"  # each prompt of the request would fit, but not all at once


@dataclass(frozen=True, slots=True)
class NoRoute:
    why: Dead
    numbers: Mapping[str, float]


Outlook = Placement | Wait | NoRoute


Place = Callable[[Need, Fleet, Rules, set[str], set[str]], Outlook]


def choose_path(need: Need, decode: DecodeCandidate, fleet: Fleet, rules: Rules) -> tuple[Path, str] | None:
    """How `decode` would get the prompt's KV; None when it cannot."""
    uncached = need.prompt_tokens - min(decode.cached_tokens, need.prompt_tokens - 1)
    if decode.role is Role.BOTH and not _starved(decode, fleet):
        return Path.COLOCATED, "role_both"
    if uncached < rules.local_below_tokens:
        return Path.LOCAL, "short" if need.prompt_tokens < rules.local_below_tokens else "cached"
    if fleet.partners(decode.worker_id):
        return Path.REMOTE, "handoff"
    if decode.role is Role.BOTH:
        return Path.COLOCATED, "role_both"
    if rules.prefill_here_if_none:
        return Path.LOCAL, "no_prefill_worker"
    return None


def _starved(decode: DecodeCandidate, fleet: Fleet) -> bool:
    """Pure prefill workers that only `both` workers can serve: they would idle if those stayed colocated."""
    if not fleet.dedicated:
        return False
    dedicated = any(worker.role is Role.PREFILL for worker in fleet.partners(decode.worker_id))
    return dedicated and all(worker.role is Role.BOTH for worker in fleet.decodes)


def place(need: Need, fleet: Fleet, rules: Rules, avoid: Collection[str] = (), never: Collection[str] = ()) -> Outlook:
    """The decode worker with the most free KV after growth, of those that have a way to the prompt's KV.

    `avoid` names workers to use only if there is no other; `never` those that said they will never take it.
    """
    room = fleet.room(forecast=need.likely_tokens > 0) if fleet.decodes else None
    found = None if room is None else _roomiest(need, fleet, room, rules, avoid, never)
    if found is not None:
        nearest, its = _nearest(*found, need, fleet, rules, avoid, never)
        return Placement(nearest.worker_id, *its)
    if room is not None and not avoid:
        return _nobody(need, fleet, rules, never)
    fitting = able_to_decode(need, fleet, rules, never)
    if isinstance(fitting, Wait | NoRoute):
        return fitting
    decode = _best(need, fitting, avoid)
    way = choose_path(need, decode, fleet, rules)
    assert way is not None, "those that are able have one"
    return Placement(decode.worker_id, *way)


def _best(need: Need, fitting: list[DecodeCandidate], avoid: Collection[str]) -> DecodeCandidate:
    # like with like: a worker that has not told its forecast yet would look emptier by its whole emergency pool
    told = all(decode.headroom_blocks is not None for decode in fitting)

    def rank(decode: DecodeCandidate) -> tuple[bool, float, int]:
        left = decode.free_after(need) if told else decode.unreserved_after(need)
        return decode.worker_id not in avoid, left / max(1, decode.blocks_total), decode.cached_tokens

    return max(fitting, key=rank)


def _roomiest(
    need: Need, fleet: Fleet, room: Room, rules: Rules, avoid: Collection[str], never: Collection[str]
) -> tuple[DecodeCandidate, tuple[Path, str]] | None:
    """The best of those not to be avoided, and its way, without a look at each: most room first, until nobody left can
    have more."""
    least = room.least_share(need) - _ROUNDING
    first = room.first()
    decode = fleet.decodes[first]
    way = _way(decode, need, fleet, rules, avoid, never)
    if way is not None and room.alone(decode.share_after(need) + least):
        return decode, way
    best, most = None, (-inf, 0)
    for at in room.down_to(-inf):
        if room.shares[at] - least < most[0]:
            break
        decode = fleet.decodes[at]
        if (way := _way(decode, need, fleet, rules, avoid, never)) is None:
            continue
        if (its := (decode.share_after(need), decode.cached_tokens)) > most:
            best, most = (decode, way), its
    return best


def _nearest(
    decode: DecodeCandidate,
    way: tuple[Path, str],
    need: Need,
    fleet: Fleet,
    rules: Rules,
    avoid: Collection[str],
    never: Collection[str],
) -> tuple[DecodeCandidate, tuple[Path, str]]:
    """Where KV has to come from elsewhere and workers say where they stand: of those with about as much room, and as
    much of the prompt cached, the one that is nearest to whoever would compute it (R-35)."""
    if way[0] is not Path.REMOTE or not decode.placed:
        return decode, way
    least = decode.share_after(need) - ALIKE
    turns = in_turn(need.prompt_tokens, fleet.prefills)
    nearest, first = (decode, way), away(turns, fleet.links.get(decode.worker_id, {}), decode.worker_id)
    for other in fleet.decodes:
        if other.share_after(need) < least or other.cached_tokens < decode.cached_tokens:
            continue
        its_away = away(turns, fleet.links.get(other.worker_id, {}), other.worker_id)
        if its_away >= first:
            continue
        its = _way(other, need, fleet, rules, avoid, never)
        if its is not None and its[0] is Path.REMOTE:
            nearest, first = (other, its), its_away
    return nearest


def _way(
    decode: DecodeCandidate, need: Need, fleet: Fleet, rules: Rules, avoid: Collection[str], never: Collection[str]
) -> tuple[Path, str] | None:
    """Of a worker that is not to be avoided and takes it now."""
    if decode.closed or decode.worker_id in avoid or decode.worker_id in never:
        return None
    if not decode.fits(need) or not decode.could_ever(need):
        return None
    return choose_path(need, decode, fleet, rules)


def able_to_decode(
    need: Need, fleet: Fleet, rules: Rules, never: Collection[str] = ()
) -> list[DecodeCandidate] | Wait | NoRoute:
    """Everyone with a way to the prompt's KV and room for its growth now, or why there is nobody."""
    sizes = {one.block_size_tokens for one in fleet.decodes}
    blocks = {size: (need.blocks(size), need.likely_blocks(size)) for size in sizes}
    longest, answers, forecast = need.longest_tokens, need.answers, need.likely_tokens > 0
    fitting = []
    for one in fleet.decodes:
        most, likely = blocks[one.block_size_tokens]
        room = one.headroom_blocks if forecast and one.headroom_blocks is not None else one.blocks_free
        slots = one.slots_total if one.slots_free is None else min(one.slots_total, one.slots_free)
        plenty = room >= likely and one.blocks_total >= most and one.window >= longest and slots >= answers
        if plenty and rules.prefill_here_if_none:  # whatever its way is, it has one
            if not one.closed and one.worker_id not in never:
                fitting.append(one)
        elif _way(one, need, fleet, rules, (), never) is not None:
            fitting.append(one)
    return fitting or _nobody(need, fleet, rules, never)


def _nobody(need: Need, fleet: Fleet, rules: Rules, never: Collection[str]) -> Wait | NoRoute:
    """Why no worker takes it now."""
    if not fleet.decodes:
        return NoRoute(Dead.NO_DECODE, {})
    able = [decode for decode in fleet.decodes if decode.could_ever(need) and decode.worker_id not in never]
    if not able:
        return _too_big(need, fleet)
    served = [decode for decode in able if choose_path(need, decode, fleet, rules) is not None]
    if not served:
        return NoRoute(Dead.NO_PREFILL, {"decode_workers": len(able)})
    roomiest = max(served, key=lambda decode: decode.blocks_free)
    return Wait(need.likely_blocks(roomiest.block_size_tokens), roomiest.blocks_free, roomiest.blocks_total)


def _too_big(need: Need, fleet: Fleet) -> NoRoute:
    window = max(decode.window for decode in fleet.decodes)
    if need.prompt_tokens >= window:
        return NoRoute(Dead.TOO_LONG, {"prompt_tokens": need.prompt_tokens, "window_tokens": window})
    largest = max(fleet.decodes, key=lambda decode: decode.blocks_total * decode.block_size_tokens)
    return NoRoute(
        Dead.NEVER_FITS,
        {
            "prompt_tokens": need.prompt_tokens,
            "growth_tokens": need.growth_tokens,
            "blocks_needed": need.blocks(largest.block_size_tokens),
            "blocks_total": largest.blocks_total,
            "answers": need.answers,
            "slots_total": max(decode.slots_total for decode in fleet.decodes),
        },
    )
