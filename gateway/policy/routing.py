"""Which worker decodes a prompt, and whether it is handed off. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import inf

from gateway.config import OnNoPrefill, RoutingConfig
from proto.worker import Role

#: Fastest first; a transport that is not named here comes last.
LINK_RANK: dict[str, int] = {"nvlink": 0, "rdma": 1, "shm": 2, "tcp": 3}


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
        return cls(config.local_prefill_below_tokens, config.on_no_prefill is OnNoPrefill.LOCAL)


@dataclass(frozen=True, slots=True)
class Need:
    """`growth_tokens`: the most that all answers add; it must fit an empty worker. `likely_tokens`: what they are
    expected to take of a worker's future, where the worker decides by forecast; 0 where it reserves all growth. That is
    less than their length: `expected_tokens`, on the mean and all answers together; 0 where it is not known.
    """

    prompt_tokens: int
    growth_tokens: int
    answers: int
    likely_tokens: int = 0
    expected_tokens: float = 0.0

    @property
    def longest_tokens(self) -> int:
        """One answer with its prompt: what the window bounds."""
        return self.prompt_tokens + -(-self.growth_tokens // self.answers)

    def blocks(self, block_size_tokens: int) -> int:
        """Full prompt blocks once, and each answer's part; an estimate, the worker alone decides what it charges."""
        return self._blocks(self.growth_tokens, block_size_tokens)

    def likely_blocks(self, block_size_tokens: int) -> int:
        """What to count a worker's room with."""
        return self._blocks(self.likely_tokens or self.growth_tokens, block_size_tokens)

    def start_blocks(self, block_size_tokens: int) -> int:
        """Without these no answer can begin."""
        return self._blocks(self.answers, block_size_tokens)

    def _blocks(self, growth_tokens: int, block_size_tokens: int) -> int:
        return _blocks(self.prompt_tokens, growth_tokens, self.answers, block_size_tokens)


@lru_cache(maxsize=256)  # every worker of a fleet asks the same
def _blocks(prompt_tokens: int, growth_tokens: int, answers: int, block_size_tokens: int) -> int:
    shared, rest = divmod(prompt_tokens, block_size_tokens)
    each = max(1, -(-growth_tokens // answers))
    return shared + answers * -(-(rest + each) // block_size_tokens)


@dataclass(frozen=True, slots=True)
class DecodeCandidate:
    """A decode worker that may take work. `closed` says that it has just refused and nothing has changed since.

    `headroom_blocks`: what the growth of everything promised there leaves, by the worker's own forecast (R-41); None
    where it is not known. `asked`: somebody is being asked there for a place now. `kv_tokens`: the engine's whole KV,
    where that is not what `blocks_total` says.
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

    def could_ever(self, need: Need) -> bool:
        if need.answers > self.slots_total:
            return False
        return need.longest_tokens <= self.window and need.blocks(self.block_size_tokens) <= self.blocks_total

    def free_after(self, need: Need) -> float:
        """Blocks left after growth: of the forecast, if the need is one, else of what is not reserved."""
        if need.likely_tokens and self.headroom_blocks is not None:
            return self.headroom_blocks - need.likely_blocks(self.block_size_tokens)
        return self.unreserved_after(need)

    def unreserved_after(self, need: Need) -> float:
        """Blocks left of what is not reserved, whatever the forecast says."""
        return self.blocks_free - need.likely_blocks(self.block_size_tokens)

    def fits(self, need: Need) -> bool:
        """Whether to ask. The worker alone knows when answers will peak together: where its room seems too small for a
        likely growth, but not for the start, it is asked all the same, for one prompt at a time. An empty one lends its
        emergency pool to what needs nearly all of it: waiting would not make that smaller."""
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

    @property
    def rank(self) -> int:
        return LINK_RANK.get(self.transport, len(LINK_RANK))


#: What two ways to compute the same share may differ by.
_ROUNDING = 1e-9

#: prefill worker id -> its link to one decode worker
Links = Mapping[str, Link]


@dataclass(frozen=True, slots=True)
class Way:
    """One way for a prompt, as it was weighed: where it is decoded and computed, and after how many tokens of the answer
    it is handed over (0: never). `load` is what it is chosen by, the less the better; times are predictions in s."""

    worker_id: str
    computed_by: str
    first_tokens: int
    load: float
    first_token_s: float
    step_s: float
    kv_share: float


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


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that may take new work now. `links` has one entry a decode worker with any usable pair.

    `dedicated`: whether any worker does nothing but prefill.
    """

    decodes: tuple[DecodeCandidate, ...]
    prefills: tuple[PrefillCandidate, ...]
    links: Mapping[str, Links]
    dedicated: bool = field(init=False)
    _orders: dict[bool, "Order | None"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # once, and not for each decode worker
        object.__setattr__(self, "dedicated", any(worker.role is Role.PREFILL for worker in self.prefills))
        object.__setattr__(self, "_orders", {})

    def order(self, *, forecast: bool) -> "Order | None":
        """The decode workers by the room they have; None where some have told their forecast and others have not."""
        if forecast not in self._orders:
            self._orders[forecast] = _order(self.decodes, forecast=forecast)
        return self._orders[forecast]

    def partners(self, decode_worker: str) -> list[PrefillCandidate]:
        links = self.links.get(decode_worker, {})
        return [worker for worker in self.prefills if worker.worker_id in links and worker.worker_id != decode_worker]


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


@dataclass(frozen=True, slots=True)
class Order:
    """`ranked`: decode workers with the share of their KV that is free now, the most first. `sizes`: tokens of a block, as
    they occur; `most_blocks`: of the largest worker."""

    ranked: tuple[tuple[float, DecodeCandidate], ...]
    sizes: frozenset[int]
    most_blocks: int

    def least_share(self, need: Need) -> float:
        """What the need takes of any of them, at least."""
        return min([need.likely_blocks(size) for size in self.sizes]) / max(1, self.most_blocks)


def _order(decodes: tuple[DecodeCandidate, ...], *, forecast: bool) -> Order | None:
    told = [decode.headroom_blocks for decode in decodes] if forecast else []
    if None not in told and told:
        shares = [decode.headroom_blocks / max(1, decode.blocks_total) for decode in decodes]  # type: ignore[operator]
    elif any(blocks is not None for blocks in told):
        return None
    else:
        shares = [decode.blocks_free / max(1, decode.blocks_total) for decode in decodes]
    places = sorted(range(len(shares)), key=shares.__getitem__, reverse=True)
    sizes = frozenset([decode.block_size_tokens for decode in decodes])
    most = max([decode.blocks_total for decode in decodes])
    return Order(tuple([(shares[at], decodes[at]) for at in places]), sizes, most)


def place(need: Need, fleet: Fleet, rules: Rules, avoid: Collection[str] = (), never: Collection[str] = ()) -> Outlook:
    """The decode worker with the most free KV after growth, of those that have a way to the prompt's KV.

    `avoid` names workers to use only if there is no other; `never` those that said they will never take it.
    """
    order = fleet.order(forecast=need.likely_tokens > 0) if fleet.decodes else None
    decode = None if order is None else _roomiest(need, fleet, order, rules, avoid, never)
    if decode is None:
        if order is not None and not avoid:
            return _nobody(need, fleet, rules, never)
        fitting = able_to_decode(need, fleet, rules, never)
        if isinstance(fitting, Wait | NoRoute):
            return fitting
        decode = _best(need, fitting, avoid)
    way = choose_path(need, decode, fleet, rules)
    assert way is not None, "both ways to choose have looked"
    return Placement(decode.worker_id, *way)


def _best(need: Need, fitting: list[DecodeCandidate], avoid: Collection[str]) -> DecodeCandidate:
    # like with like: a worker that has not told its forecast yet would look emptier by its whole emergency pool
    told = all(decode.headroom_blocks is not None for decode in fitting)

    def rank(decode: DecodeCandidate) -> tuple[bool, float, int]:
        left = decode.free_after(need) if told else decode.unreserved_after(need)
        return decode.worker_id not in avoid, left / max(1, decode.blocks_total), decode.cached_tokens

    return max(fitting, key=rank)


def _roomiest(
    need: Need, fleet: Fleet, order: Order, rules: Rules, avoid: Collection[str], never: Collection[str]
) -> DecodeCandidate | None:
    """The best of those not to be avoided, without a look at each: most room first, until nobody left can have more."""
    best, most, least = None, (-inf, 0), order.least_share(need)
    for share, decode in order.ranked:
        if share - least < most[0] - _ROUNDING:
            break
        if decode.closed or decode.worker_id in avoid or not _takes(decode, need, fleet, rules, never):
            continue
        rank = (decode.free_after(need) / max(1, decode.blocks_total), decode.cached_tokens)
        if rank > most:
            best, most = decode, rank
    return best


def _takes(decode: DecodeCandidate, need: Need, fleet: Fleet, rules: Rules, never: Collection[str]) -> bool:
    if not decode.fits(need) or not decode.could_ever(need) or decode.worker_id in never:
        return False
    return choose_path(need, decode, fleet, rules) is not None


def able_to_decode(
    need: Need, fleet: Fleet, rules: Rules, never: Collection[str] = ()
) -> list[DecodeCandidate] | Wait | NoRoute:
    """Everyone with a way to the prompt's KV and room for its growth now, or why there is nobody."""
    fitting = [one for one in fleet.decodes if not one.closed and _takes(one, need, fleet, rules, never)]
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
