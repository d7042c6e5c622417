"""KV in host memory: what the cache of one engine has evicted, to be loaded where that is quicker than computing it again."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from engine.simulated.cost import StepCost
from engine.simulated.sequence import Sequence

#: Of what is written: where a smaller share is read again, writing was for nothing.
_RARE = 0.01


@dataclass(frozen=True, slots=True)
class HostTier:
    """Of one engine. The latency is paid once a load."""

    size_bytes: float
    bytes_per_s: float
    latency_s: float = 50e-6


@dataclass(slots=True)
class HostCounters:
    """`out_bytes` went from HBM to the host and `in_bytes` back, which spared computing `loaded_tokens` in `loads`.
    `saved_s`: what that would have taken alone, less what the loads took, their wait for the link included.
    `dropped_bytes` had no room on the host any more."""

    out_bytes: int = 0
    in_bytes: int = 0
    dropped_bytes: int = 0
    loads: int = 0
    loaded_tokens: int = 0
    saved_s: float = 0.0

    @property
    def tokens_per_byte(self) -> float:
        """Recomputation avoided for each byte moved, either way."""
        moved = self.out_bytes + self.in_bytes
        return self.loaded_tokens / moved if moved else 0.0

    @property
    def harmful(self) -> bool:
        """Bytes were moved, and no time was won, or next to none of them came back."""
        return self.out_bytes + self.in_bytes > 0 and (self.saved_s <= 0 or self.in_bytes < _RARE * self.out_bytes)


def together(many: Iterable[HostCounters]) -> HostCounters:
    """The sums over several engines."""
    return HostCounters(*(sum(column) for column in zip(*(astuple(one) for one in many), strict=True)))


class HostMemory:
    """Holds blocks by their keys, those least recently used the first to go. A copy stays when a block is loaded; of a row,
    which is private to one sequence, none does.

    Only what nobody uses is evicted from HBM, so no running sequence ever loses KV to this place. Writing takes nobody's
    time; loads follow each other on one link.
    """

    def __init__(self, tier: HostTier, cost: StepCost, block_size: int, block_bytes: int) -> None:
        self.counters = HostCounters()
        self._tier = tier
        self._cost = cost
        self._size = block_size
        self._bytes = block_bytes
        self._room = int(tier.size_bytes // block_bytes)
        self._blocks: OrderedDict[int, int] = OrderedDict()
        self._used = 0
        self._free_s = 0.0  # when the link is

    @property
    def used_bytes(self) -> int:
        return self._used * self._bytes

    def evicted(self, key: int, count: int, row: bool) -> None:
        """Blocks leave HBM; those of a row go from its tail."""
        known = self._blocks.get(key, 0)
        if known and not row:
            self._blocks.move_to_end(key)
            return
        fitting = min(count, self._room - known)
        self.counters.dropped_bytes += (count - fitting) * self._bytes
        if not fitting:
            return
        count = fitting
        self.counters.out_bytes += count * self._bytes
        self._blocks[key] = known + count
        self._blocks.move_to_end(key)
        self._used += count
        while self._used > self._room:
            _, oldest = self._blocks.popitem(last=False)
            self._used -= oldest
            self.counters.dropped_bytes += oldest * self._bytes

    def beyond(self, sequence: Sequence, hit: int) -> int:
        """Tokens after the `hit` blocks found in HBM that had better be loaded than computed; 0 where none had."""
        keys, most = sequence.keys, (sequence.total - 1) // self._size
        own, reach = keys.private_from, hit
        while reach < min(own, most) and keys.key(reach) in self._blocks:
            reach += 1
        if reach >= own:
            reach = min(most, reach + self._blocks.get(keys.key(own), 0))
        tokens = (reach - hit) * self._size
        return tokens if tokens and self._load_s(reach - hit) < self._compute_s(tokens, hit * self._size) else 0

    def taken(self, sequence: Sequence, hit: int, blocks: int) -> None:
        """So many blocks after the `hit` ones have been asked for."""
        keys = sequence.keys
        for index in range(hit, min(hit + blocks, keys.private_from)):
            self._blocks.move_to_end(keys.key(index))
        if hit + blocks > keys.private_from:
            row = self._blocks.pop(keys.key(keys.private_from))
            self._used -= row

    def load(self, blocks: int, cached_tokens: int, now_s: float) -> float:
        """When so many blocks have come to HBM, to follow those tokens there, behind all loads before."""
        tier, counters = self._tier, self.counters
        self._free_s = max(self._free_s, now_s) + blocks * self._bytes / tier.bytes_per_s
        arrival_s = self._free_s + tier.latency_s
        counters.loads += 1
        counters.in_bytes += blocks * self._bytes
        counters.loaded_tokens += blocks * self._size
        counters.saved_s += self._compute_s(blocks * self._size, cached_tokens) - (arrival_s - now_s)
        return arrival_s

    def _load_s(self, blocks: int) -> float:
        return self._tier.latency_s + blocks * self._bytes / self._tier.bytes_per_s

    def _compute_s(self, tokens: int, cached_tokens: int) -> float:
        """As one step of its own."""
        return self._cost.step_s(0, 0, [(tokens, cached_tokens)])
