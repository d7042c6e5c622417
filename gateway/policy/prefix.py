"""What each decode worker has probably cached, by chained block hashes. Approximate, salted and bounded."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class BlockHashes(Protocol):
    """Names the full blocks of one prompt, so that equal beginnings have equal names."""

    def hashes(self, block_size_tokens: int) -> Sequence[int]: ...


def block_hashes(tokens: Sequence[int], block_size_tokens: int, salt: str) -> list[int]:
    """One hash a full block, each over all blocks before it. Another salt never shares a hash by design.

    Python's own hash will do: a collision costs a wrong guess about caching and nothing else.
    """
    hashes: list[int] = []
    parent = hash(("tandem-prefix", salt))
    for start in range(0, len(tokens) - block_size_tokens + 1, block_size_tokens):
        parent = hash((parent, *tokens[start : start + block_size_tokens]))
        hashes.append(parent)
    return hashes


@dataclass(slots=True)
class PrefixKey:
    """The hashes of one prompt, computed when first asked for and kept: a prompt may wait its turn many times."""

    tokens: Sequence[int]
    salt: str
    _hashes: dict[int, list[int]] = field(default_factory=dict)

    def hashes(self, block_size_tokens: int) -> list[int]:
        if block_size_tokens not in self._hashes:
            self._hashes[block_size_tokens] = block_hashes(self.tokens, block_size_tokens, self.salt)
        return self._hashes[block_size_tokens]


@dataclass(slots=True)
class PrefixIndex:
    """The block hashes one worker is believed to hold, least recently used first. Bounded by `capacity` blocks."""

    capacity: int
    block_size_tokens: int
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._blocks)

    def cached_tokens(self, hashes: Sequence[int]) -> int:
        """Length of the longest known prefix."""
        known = 0
        for block in hashes:
            if block not in self._blocks:
                break
            known += 1
        return known * self.block_size_tokens

    def insert(self, hashes: Sequence[int]) -> None:
        """Notes that the worker has just computed or received these blocks."""
        # Deepest first, so that a chain is forgotten from its end: a prefix is useful without what follows it.
        for block in reversed(hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)
