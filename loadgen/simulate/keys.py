"""Names of prompt blocks without tokens: what the gateway's index and the engines' caches know prompts by."""

from collections.abc import Sequence

from loadgen.demand import Demand


class PromptBlocks:
    """The gateway's `BlockHashes` from a demand's prefix ids.

    Equal leading ids name equal blocks. What follows the shared part belongs to the request alone and has no name.
    """

    __slots__ = ("_demand", "_known")

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._known: tuple[int, tuple[int, ...]] = (0, ())

    def hashes(self, block_size_tokens: int) -> Sequence[int]:
        """One name for each full block that the prefix covers."""
        if self._known[0] != block_size_tokens:
            self._known = (block_size_tokens, _names(self._demand, block_size_tokens))
        return self._known[1]


class NoBlocks:
    """A prompt that shares nothing."""

    __slots__ = ()

    def hashes(self, block_size_tokens: int) -> Sequence[int]:
        return ()


_NONE = NoBlocks()


def prompt_blocks(demand: Demand) -> PromptBlocks | NoBlocks:
    return PromptBlocks(demand) if demand.prefix else _NONE


def _names(demand: Demand, size: int) -> tuple[int, ...]:
    chained, parent = [], 0
    for one in demand.prefix:
        parent = hash((parent, one))
        chained.append(parent)
    covered = min(demand.prompt_tokens, len(chained) * demand.block_tokens)
    # a block is known once all of it is: the id under its last token decides, and stands for everything before
    return tuple(hash((chained[((n + 1) * size - 1) // demand.block_tokens], n)) for n in range(covered // size))
