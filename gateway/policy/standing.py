"""What a gateway has learnt of one worker by asking it. Pure: times are parameters."""

from dataclasses import dataclass
from math import exp, inf

#: A worker that has refused is asked again after this long even if nothing seems to have changed.
REOPEN_S = 0.1

#: Fewer computed prompt tokens than this tell how long an engine step takes, not how fast prompts are: the rest of a
#: prompt that was nearly all cached would make every long one look hopeless.
SPEED_TOKENS = 256

#: Seconds of computing after which a measurement of a worker's prefill speed counts for a third.
_MEMORY_S = 10.0


@dataclass(slots=True)
class Door:
    """Closed by a refusal, until something has changed or `REOPEN_S` have passed."""

    _until_s: float = 0.0

    def refused(self, now_s: float) -> None:
        self._until_s = now_s + REOPEN_S

    def changed(self) -> None:
        self._until_s = 0.0

    def closed(self, now_s: float) -> bool:
        return now_s < self._until_s


@dataclass(slots=True)
class PrefillSpeed:
    """Prompt tokens per second of a worker as measured by legs; 0 until there was one.

    Prompts share engine steps, so that their times overlap: a short one takes as long as the step that it fills a part
    of. Only what no earlier prompt has been counted for counts. By each one's own time a busy worker looks half as fast
    as it is, and promises that hold look broken.
    """

    tokens_per_s: float = 0.0
    _tokens: float = 0.0
    _seconds: float = 0.0
    _ended_s: float = -inf

    def measured(self, tokens: int, seconds: float, now_s: float) -> None:
        """`tokens` were computed, those found in the cache left out, in the `seconds` until now."""
        if tokens < SPEED_TOKENS or seconds <= 0:
            return
        alone_s = min(seconds, max(0.0, now_s - self._ended_s))
        kept = exp(-alone_s / _MEMORY_S)
        self._tokens = kept * self._tokens + tokens
        self._seconds = kept * self._seconds + alone_s
        self._ended_s = max(self._ended_s, now_s)
        self.tokens_per_s = self._tokens / self._seconds
