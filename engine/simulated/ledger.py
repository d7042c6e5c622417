"""Which blocks belong to which sequence."""

from engine.simulated.blocks import Block, BlockPool
from engine.simulated.host_memory import HostMemory
from engine.simulated.sequence import Sequence


class Ledger:
    """Moves blocks between the pool and sequences; the only one that changes what a sequence holds."""

    def __init__(self, blocks: int, block_size: int, *, caching: bool, host: HostMemory | None = None) -> None:
        self.pool = BlockPool(blocks, caching=caching, evicted=None if host is None else host.evicted)
        self.host = host
        self.block_size = block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def allocate(self, sequence: Sequence, blocks: int) -> None:
        if blocks > 0:
            self.pool.take(blocks)
            sequence.plain += blocks

    def promote(self, sequence: Sequence, computed: int) -> None:
        """Gives keys to blocks that have become full."""
        if not self.pool.caching:
            return
        missing = computed // self.block_size - sequence.keyed
        blocks, keys = sequence.blocks, sequence.keys
        own = keys.private_from
        while missing > 0:
            keyed, count = sequence.keyed, 1
            if keyed > own:
                count = missing
                blocks[-1].count += count
            elif keyed == own:
                count = missing
                blocks.append(self.pool.promote(keys.key(own), count, row=True))
            else:
                blocks.append(self.pool.promote(keys.key(keyed)))
            sequence.keyed = keyed + count
            sequence.plain -= count
            missing -= count

    def is_row(self, sequence: Sequence, computed: int) -> bool:
        """Whether what it holds follows from `computed` alone, and will as it grows."""
        full = computed // self.block_size
        if sequence.held != -(-computed // self.block_size):
            return False
        if not self.pool.caching:
            return not sequence.keyed
        return sequence.keyed == full and full > sequence.keys.private_from

    def lengthen(self, sequence: Sequence) -> None:
        """The account of a row whose blocks have been taken from the pool already."""
        computed = sequence.computed
        held = -(-computed // self.block_size)
        if self.pool.caching:
            full = computed // self.block_size
            sequence.blocks[-1].count += full - sequence.keyed
            sequence.keyed = full
        sequence.plain = held - sequence.keyed

    def free(self, sequence: Sequence) -> None:
        if sequence.blocks or sequence.plain:
            self.pool.release(sequence.blocks, sequence.plain)
            sequence.blocks = []
            sequence.keyed = 0
            sequence.plain = 0

    def on_host(self, sequence: Sequence, hit: int) -> int:
        """Tokens after the `hit` blocks in HBM that had better be loaded from the host."""
        return 0 if self.host is None else self.host.beyond(sequence, hit)

    def cached(self, sequence: Sequence) -> list[Block]:
        """The cached beginning of a sequence. Its last token is always computed, for the logits."""
        most = (sequence.total - 1) // self.block_size
        own = sequence.keys.private_from
        blocks = self.pool.lookup(sequence.keys.key(index) for index in range(min(most, own + 1)))
        excess = sum(block.count for block in blocks) - most
        if excess > 0:
            self.pool.trim(blocks[-1], excess)
        return blocks
