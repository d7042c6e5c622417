"""One sequence as the scheduler sees it: lengths, blocks and state, no tokens."""

import sys
from collections.abc import Sequence as Tokens
from enum import IntEnum
from typing import Protocol
from zlib import crc32

from engine.simulated.blocks import Block


class Status(IntEnum):
    WAITING = 0
    LOADING = 1  # its KV is on the way from another engine; holds blocks
    RUNNING = 2
    PREEMPTED = 3
    ENDED = 4


class BlockKeys(Protocol):
    """Names the content of full blocks, so that equal prefixes have equal keys.

    Blocks from `private_from` on belong to this sequence alone and share one key.
    """

    private_from: int

    def key(self, index: int) -> int: ...


class TokenKeys:
    """Keys of real tokens: each covers its block and everything before it. Grows with the token list."""

    __slots__ = ("_block_size", "_keys", "_salt", "_tokens", "private_from")

    def __init__(self, tokens: Tokens[int], block_size: int, salt: str = "") -> None:
        self._tokens = tokens
        self._block_size = block_size
        self._salt = crc32(salt.encode()) if salt else 0
        self._keys: list[int] = []
        self.private_from = sys.maxsize

    def key(self, index: int) -> int:
        keys, size = self._keys, self._block_size
        while len(keys) <= index:
            start = len(keys) * size
            chunk = tuple(self._tokens[start : start + size])
            keys.append(hash((keys[-1] if keys else self._salt, chunk)))
        return keys[index]


class SyntheticKeys:
    """Keys without tokens, for virtual time: given ones for the shared prefix, one private key after it."""

    __slots__ = ("_private", "_shared", "private_from")

    def __init__(self, private: int, shared: Tokens[int] = ()) -> None:
        self._private = ("private", private).__hash__()
        self._shared = shared
        self.private_from = len(shared)

    def key(self, index: int) -> int:
        return self._shared[index] if index < len(self._shared) else self._private


class Clocks(Protocol):
    """What moves the lengths of a sequence that only decodes."""

    clock: int
    sampled: int


class Sequence:
    """Mutable. `total` counts prompt and answer, `computed` those whose KV exists (or is being made this step)."""

    __slots__ = (
        "_clocks",
        "_computed",
        "_total",
        "answering",
        "arrival",
        "blocks",
        "external",
        "high_water",
        "hit",
        "keyed",
        "keys",
        "loaded",
        "loner",
        "plain",
        "planned",
        "preemptions",
        "priority",
        "prompt",
        "request_id",
        "skip_cache",
        "started",
        "status",
    )

    def __init__(self, request_id: str, prompt: int, keys: BlockKeys, *, priority: int = 0, external: int = 0) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.keys = keys
        self.priority = priority
        self.external = external  # tokens that another engine holds for us; 0 once fetched
        self.arrival = 0
        self.status = Status.WAITING
        self._computed = 0
        self._total = prompt
        self._clocks: Clocks | None = None
        self.high_water = 0  # most tokens ever computed: beyond a cache hit, computing them again is waste
        self.blocks: list[Block] = []  # full blocks with a key; always a prefix
        self.keyed = 0  # how many blocks they are
        self.plain = 0  # blocks after them
        self.hit = 0  # tokens found in the own cache when first admitted
        self.planned = 0  # tokens of the step being planned
        self.preemptions = 0
        self.loaded = False
        self.skip_cache = False
        self.started = False
        self.answering = False  # has its first token
        self.loner = False  # never treated together with others

    @property
    def computed(self) -> int:
        clocks = self._clocks
        return self._computed if clocks is None else self._computed + clocks.clock

    @computed.setter
    def computed(self, tokens: int) -> None:
        self._computed = tokens

    @property
    def total(self) -> int:
        clocks = self._clocks
        return self._total if clocks is None else self._computed + clocks.sampled + 1

    @total.setter
    def total(self, tokens: int) -> None:
        self._total = tokens

    @property
    def held(self) -> int:
        return self.keyed + self.plain

    @property
    def steady(self) -> bool:
        return self._clocks is not None

    def enter(self, clocks: Clocks, base: int) -> None:
        self._clocks = clocks
        self._computed = base

    def leave(self) -> int:
        """Back to lengths of its own; returns the base."""
        base, computed, total = self._computed, self.computed, self.total
        self._clocks = None
        self._computed, self._total = computed, total
        return base

    def __lt__(self, other: "Sequence") -> bool:
        return (self.priority, self.arrival) < (other.priority, other.arrival)
