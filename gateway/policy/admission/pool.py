"""What the emergency pool absorbs, and what holding it back costs (R-11, R-12). Pure: the clock is a parameter."""

from collections import OrderedDict
from dataclasses import dataclass, field

#: Requests that were made to wait by the pool are told apart while they are among so many.
_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class PoolReport:
    """`idle_block_s`: blocks of the pool that nobody used, times how long: the price, to be set against `draws`.

    `delayed_requests` and `_tokens` (prompt and median output) would have been admitted at once without the pool.
    """

    size_blocks: int
    used_blocks: int
    peak_used_blocks: int
    draws: int
    drawn_s: float
    idle_block_s: float
    observed_s: float
    delayed_requests: int
    delayed_tokens: float


@dataclass(slots=True)
class PoolAccount:
    """`observe` whenever the use may have changed; what was seen last is taken to have lasted until then."""

    size_blocks: int
    used_blocks: int = 0
    peak_used_blocks: int = 0
    draws: int = 0
    drawn_s: float = 0.0
    idle_block_s: float = 0.0
    observed_s: float = 0.0
    delayed_requests: int = 0
    delayed_tokens: float = 0.0
    _last_s: float | None = None
    _delayed: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def observe(self, used_blocks: int, now_s: float) -> None:
        if self._last_s is not None:
            lasted_s = max(0.0, now_s - self._last_s)
            self.observed_s += lasted_s
            self.idle_block_s += lasted_s * (self.size_blocks - self.used_blocks)
            self.drawn_s += lasted_s if self.used_blocks else 0.0
        self._last_s = now_s
        self.draws += bool(used_blocks and not self.used_blocks)
        self.used_blocks = used_blocks
        self.peak_used_blocks = max(self.peak_used_blocks, used_blocks)

    def refused(self, request_id: str, headroom_blocks: float, tokens: float) -> None:
        """A candidate has to wait; `headroom_blocks` is negative. Asked again, it counts once."""
        if headroom_blocks + self.size_blocks < 0.0 or request_id in self._delayed:
            return
        self._delayed[request_id] = None
        if len(self._delayed) > _REMEMBERED:
            self._delayed.popitem(last=False)
        self.delayed_requests += 1
        self.delayed_tokens += tokens

    def report(self) -> PoolReport:
        return PoolReport(
            self.size_blocks,
            self.used_blocks,
            self.peak_used_blocks,
            self.draws,
            self.drawn_s,
            self.idle_block_s,
            self.observed_s,
            self.delayed_requests,
            self.delayed_tokens,
        )
