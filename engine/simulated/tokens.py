"""Which token comes next: a pure function of the tokens so far and the sampling parameters."""

from array import array
from collections.abc import Sequence
from zlib import crc32

from engine.simulated.vocabulary import Vocabulary
from proto.sampling import Sampling
from proto.work import PromptLogprobs, TokenLogprobs

_MASK = (1 << 64) - 1
_FORCED = 50.0  # a bias beyond this decides the draw, as it would with real logits


def digest(tokens: Sequence[int], start: int = 0) -> int:
    """A running checksum of tokens: digest(a + b) == digest(b, digest(a))."""
    return crc32(array("I", tokens).tobytes(), start)


def scramble(value: int) -> int:
    value = (value * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
    value ^= value >> 29
    value = (value * 0xBF58476D1CE4E5B9) & _MASK
    return value ^ (value >> 32)


class TokenStream:
    """Draws the answer of one sequence.

    The next token depends on every token before it, so a sequence continued elsewhere goes on as if nothing
    had happened, and a lost, doubled or foreign token shows at once. With a seed, or with penalties that
    count the answer alone, it also depends on how many tokens this engine has drawn, as with a real engine:
    then a hand-off after some tokens is not the same as none.
    """

    __slots__ = (
        "_banned_early",
        "_biased",
        "_eos_below",
        "_forced",
        "_last",
        "_min",
        "_salt",
        "_steps",
        "_vocabulary",
        "drawn",
        "state",
    )

    def __init__(self, vocabulary: Vocabulary, sampling: Sampling, prompt: Sequence[int], mean_answer: int) -> None:
        seeded = sampling.seed is not None and sampling.temperature > 0
        counts = bool(seeded or sampling.presence_penalty or sampling.frequency_penalty)
        self._vocabulary = vocabulary
        self._salt = scramble((sampling.seed or 0) + 1) if seeded else 0
        self._steps = 0xD1B54A32D192ED03 if counts else 0
        self._eos_below = (1 << 20) // mean_answer if mean_answer else 0
        forced = [(bias, -token) for token, bias in sampling.logit_bias if bias >= _FORCED]
        self._forced = -max(forced)[1] if forced else None
        self._biased = frozenset(token for token, bias in sampling.logit_bias if bias <= -_FORCED)
        self._min = sampling.min_tokens
        self._banned_early = frozenset(vocabulary.eos) | frozenset(sampling.stop_token_ids)
        self._last = prompt[-1]
        self.state = digest(prompt)
        self.drawn = 0

    def next(self) -> int:
        seed = self.state ^ self._salt ^ (self._steps * self.drawn & _MASK)
        token = self._vocabulary.successors.get(self._last)
        if token is None:
            token = self._draw(scramble(seed))
        early = self.drawn < self._min
        if early or self._biased:
            banned = self._biased | self._banned_early if early else self._biased
            attempt = 0
            while token in banned and attempt < 64:
                attempt += 1
                token = self._draw(scramble(seed + attempt), attempt)
        self.state = crc32(token.to_bytes(4, "little"), self.state)
        self.drawn += 1
        self._last = token
        return token

    def _draw(self, value: int, attempt: int = 0) -> int:
        if self._forced is not None and not attempt:
            return self._forced
        vocabulary = self._vocabulary
        if (value & 0xFFFFF) < self._eos_below:
            return vocabulary.eos[0]
        drawable = vocabulary.drawable
        return drawable[(value >> 20) % len(drawable)]


def token_logprobs(state: int, token: int, wanted: int, vocabulary: Vocabulary) -> TokenLogprobs:
    """Made-up but deterministic: the token itself, then the `wanted` likeliest, of which it is the first."""
    value = scramble(state ^ 0x5DEECE66D)
    ids, logprobs = [token], [-(value % 1000) / 1000]
    drawable = vocabulary.drawable
    while len(ids) < wanted and len(ids) < len(drawable) // 2:
        value = scramble(value)
        other = drawable[value % len(drawable)]
        if other not in ids:
            ids.append(other)
            logprobs.append(logprobs[-1] - 0.5 - (value >> 40) % 1000 / 1000)
    if wanted:
        ids.insert(0, token)
        logprobs.insert(0, logprobs[0])
    return TokenLogprobs(tuple(ids), tuple(logprobs), (1, *range(1, len(ids))))


def prompt_logprobs(tokens: Sequence[int], wanted: int, vocabulary: Vocabulary) -> PromptLogprobs:
    """One entry a prompt token; the first has none."""
    state = 0
    entries: list[TokenLogprobs | None] = []
    for token in tokens:
        entries.append(token_logprobs(state, token, wanted, vocabulary) if entries else None)
        state = digest((token,), state)
    return tuple(entries)
