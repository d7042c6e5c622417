"""Paged KV blocks with a prefix cache: counts for blocks nobody can look up, objects for those somebody can."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence


class Block:
    """Full blocks in a row whose content is known by one key; evictable while nobody refers to them.

    Real tokens have a key a block. Where content is private to one sequence anyway, `count` blocks share a key: a `row`.
    """

    __slots__ = ("count", "key", "refs", "row")

    def __init__(self, key: int, count: int = 1, *, row: bool = False) -> None:
        self.key = key
        self.count = count
        self.row = row
        self.refs = 1


class BlockPool:
    """Blocks of one engine.

    Plain blocks (without a key) are interchangeable, so they are only counted. Free blocks are taken plain
    ones first, then cached ones by least recent use; that is the order a queue would give in which plain
    blocks return to the front and cached ones to the back.
    """

    def __init__(
        self, total: int, *, caching: bool = True, evicted: Callable[[int, int, bool], None] | None = None
    ) -> None:
        """`evicted` is told of what the cache gives up: the key, how many blocks, whether they were of a row."""
        self._evicted = evicted
        self.total = total
        self.caching = caching
        self.free = total
        self._plain_free = total
        self._evictable: OrderedDict[Block, None] = OrderedDict()
        self._by_key: dict[int, Block] = {}
        # Two sequences that compute the same prefix at the same time end up with equal blocks; the older serves.
        self._twins: dict[int, list[Block]] = {}

    @property
    def used(self) -> int:
        return self.total - self.free

    def lookup(self, keys: Iterable[int]) -> list[Block]:
        """The longest run of cached blocks from the start; nothing is taken yet."""
        found: list[Block] = []
        if not self.caching:
            return found
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def evictable_among(self, blocks: Sequence[Block]) -> int:
        """How many of these count as free now, and would not after `touch`."""
        return sum(block.count for block in blocks if not block.refs)

    def touch(self, blocks: Sequence[Block]) -> None:
        """Takes cached blocks for one more user."""
        for block in blocks:
            if not block.refs:
                del self._evictable[block]
                self.free -= block.count
            block.refs += 1

    def take(self, count: int) -> None:
        """Takes plain blocks, evicting the least recently used cached ones when needed."""
        if count > self.free:
            raise ValueError(f"{count} blocks wanted, {self.free} free")
        self.free -= count
        plain = self._plain_free
        if count <= plain:
            self._plain_free = plain - count
            return
        self._plain_free = 0
        self._evict(count - plain)

    def promote(self, key: int, count: int = 1, *, row: bool = False) -> Block:
        """Plain blocks in use have become full: from now on they can be found by their key."""
        block = Block(key, count, row=row)
        if key in self._by_key:
            self._twins.setdefault(key, []).append(block)
        else:
            self._by_key[key] = block
        return block

    def release(self, blocks: Sequence[Block], plain: int) -> None:
        """Gives back one user's blocks, in allocation order; the tail will be evicted first."""
        self._plain_free += plain
        self.free += plain
        for block in reversed(blocks):
            if block.refs <= 0:
                raise ValueError("block released twice")
            block.refs -= 1
            if not block.refs:
                self._evictable[block] = None
                self.free += block.count
        if self.free > self.total:
            raise ValueError("more blocks free than there are")

    def trim(self, block: Block, count: int) -> None:
        """Makes the last blocks of a free row plain."""
        block.count -= count
        self._plain_free += count

    def _evict(self, count: int) -> None:
        while count:
            block = next(iter(self._evictable))
            if self._evicted is not None:
                self._evicted(block.key, min(count, block.count), block.row)
            if block.count > count:
                block.count -= count  # from its tail: what remains is still a prefix
                return
            count -= block.count
            del self._evictable[block]
            self._forget(block)

    def _forget(self, block: Block) -> None:
        twins = self._twins.get(block.key)
        if self._by_key.get(block.key) is block:
            if twins:
                self._by_key[block.key] = twins.pop(0)
            else:
                del self._by_key[block.key]
        elif twins:
            twins.remove(block)
        if twins is not None and not twins:
            del self._twins[block.key]
