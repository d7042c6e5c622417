"""What a prompt needs of a worker. Pure."""

from dataclasses import dataclass
from functools import lru_cache


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
