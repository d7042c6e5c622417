"""Prompts of exact token counts, with real shared prefixes. Pure: the same request always gets the same text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from loadgen.client.vocabulary import Vocabulary
from loadgen.demand import Demand

_PHRASE = 16
_PHRASES = 4096


@dataclass(frozen=True)
class PromptWriter:
    """`salt` keeps repetitions from meeting each other's prefix cache; arms of a comparison share it.

    Words are indices into the vocabulary until the very end, so text and token ids are the same words.
    """

    vocabulary: Vocabulary
    salt: int = 0

    def text(self, demand: Demand, index: int, *, chat: bool = False) -> str:
        """For the completions surface, or as the one user message of a chat."""
        if demand.text is not None:
            return demand.text
        words = self.vocabulary.words
        own = self.vocabulary.chat_overhead if chat else self.vocabulary.overhead
        return self.vocabulary.join(
            [words[i] for i in self._indices(demand, index, max(1, demand.prompt_tokens - own))]
        )

    def ids(self, demand: Demand, index: int) -> list[int]:
        """Token ids, exact by construction: nothing is added to them."""
        ids = self.vocabulary.ids
        return [ids[i] for i in self._indices(demand, index, demand.prompt_tokens)]

    def _indices(self, demand: Demand, index: int, count: int) -> list[int]:
        taken: list[int] = []
        for block in demand.prefix:
            if len(taken) >= count:
                break
            taken += _block(len(self.vocabulary.words), block, demand.block_tokens, self.salt)
        if len(taken) < count:
            taken += self._own(index, count - len(taken), first=not taken)
        return taken[:count]

    def _own(self, index: int, count: int, *, first: bool) -> list[int]:
        """Words of this request alone: its number in words, then phrases at random."""
        size = len(self.vocabulary.words)
        rng = np.random.default_rng((self.salt, 1, index))
        words = [0] if first else []
        words += [*_digits(index, size, 1 << 24), self.salt % size]
        phrases = _phrases(size, self.salt)
        picks = rng.integers(_PHRASES, size=max(0, -(-(count - len(words)) // _PHRASE))).tolist()
        for pick in picks:
            words += phrases[pick]
        return words


@lru_cache(maxsize=8)
def _phrases(words: int, salt: int) -> Sequence[list[int]]:
    drawn: list[list[int]] = np.random.default_rng((salt, 2)).integers(words, size=(_PHRASES, _PHRASE)).tolist()
    return drawn


@lru_cache(maxsize=4096)
def _block(words: int, block: int, tokens: int, salt: int) -> tuple[int, ...]:
    """The text of a prefix block. It begins with the start word and the block's own number."""
    rng = np.random.default_rng((salt, 3, block))
    own = (0, *_digits(block, words, 1 << 52))
    drawn = rng.integers(words, size=tokens).tolist()
    return (*own, *drawn)[:tokens]


def _digits(number: int, base: int, below: int) -> list[int]:
    """Enough digits to tell all numbers below a bound apart."""
    digits = []
    while below > 0:
        digits.append(number % base)
        number //= base
        below //= base
    return digits
