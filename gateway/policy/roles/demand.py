"""What the traffic asks of the fleet, averaged over the last while."""

from dataclasses import dataclass
from math import exp


def haste_of(output_tokens: float) -> float:
    """By how many steps the mean time of an answer's tokens grows when one step more passes. The first token is apart."""
    return 1 / max(1.0, output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Load:
    """Per second: prompt tokens to compute, and tokens to generate. `context_tokens`: KV that a generated one reads.

    `haste`: what one step more adds to an answer's mean time a token, in steps, on the mean over answers.
    """

    prompt_tokens_per_s: float
    tokens_per_s: float
    context_tokens: float
    haste: float = 0.0


@dataclass(slots=True)
class Demand:
    """Sums that fade with `memory_s`, made up for the time that has not been seen yet."""

    memory_s: float
    _begun_s: float | None = None
    _last_s: float = 0.0
    _requests: float = 0.0
    _prompts: float = 0.0
    _tokens: float = 0.0
    _reads: float = 0.0
    _hastes: float = 0.0

    def arrived(self, now_s: float, prompt_tokens: int, uncached_tokens: int, output_tokens: float) -> None:
        """`output_tokens` as expected."""
        self._fade(now_s)
        self._requests += 1
        self._prompts += uncached_tokens
        self._tokens += output_tokens
        self._reads += output_tokens * (prompt_tokens + output_tokens / 2)
        self._hastes += haste_of(output_tokens)

    def load(self, now_s: float) -> Load:
        self._fade(now_s)
        begun_s = now_s if self._begun_s is None else self._begun_s
        seen_s = self.memory_s * (1 - exp(-(now_s - begun_s) / self.memory_s))
        if seen_s <= 0 or self._tokens <= 0:
            return Load(0.0, 0.0, 0.0)
        haste = self._hastes / self._requests
        return Load(self._prompts / seen_s, self._tokens / seen_s, self._reads / self._tokens, haste)

    def _fade(self, now_s: float) -> None:
        if self._begun_s is None:
            self._begun_s = self._last_s = now_s
        kept = exp(-(now_s - self._last_s) / self.memory_s)
        self._last_s = now_s
        self._requests *= kept
        self._prompts *= kept
        self._tokens *= kept
        self._reads *= kept
        self._hastes *= kept
