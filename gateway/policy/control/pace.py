"""How fast requests are served, and how fast they would be alone. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from gateway.policy.standing import SPEED_TOKENS

#: A speed that was not measured for so long is not known any more. By one bad figure every promise could look broken;
#: all would be refused, and nothing would ever be measured again.
STALE_S = 60.0
#: Share of the newest measurement in a smoothed one.
_SMOOTHING = 0.1
#: What the best that was seen loses with every request, so that one lucky figure does not stand for ever.
_FADING = 1.002


@dataclass(slots=True)
class Pace:
    """Seconds per prompt token (computed ones) and per answer token: the best seen, fading, and the usual.

    `clock` in s: the usual is that of late.
    """

    clock: Callable[[], float]
    best_prompt_s: float = 0.0
    best_token_s: float = 0.0
    _usual_s: float = 0.0
    _measured_s: float = -inf

    def seen(self, prompt_tokens: int, prefill_s: float, gaps: int, decode_s: float) -> None:
        """`gaps`: tokens of one answer after its first."""
        if prompt_tokens > 0 and prefill_s > 0:
            each = prefill_s / prompt_tokens
            self.best_prompt_s = _best(self.best_prompt_s, each)
            if prompt_tokens >= SPEED_TOKENS:
                self._measured(each)
        if gaps > 0 and decode_s > 0:
            self.best_token_s = _best(self.best_token_s, decode_s / gaps)

    def unloaded_s(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """What a request would take alone; None while nothing is known."""
        if not self.best_token_s:
            return None
        return prompt_tokens * self.best_prompt_s + output_tokens * self.best_token_s

    @property
    def prompt_s(self) -> float:
        """0 while nothing is known of late."""
        return self._usual_s if self.clock() - self._measured_s <= STALE_S else 0.0

    @property
    def prompt_tokens_per_s(self) -> float:
        """0 while nothing is known of late."""
        each_s = self.prompt_s
        return 1.0 / each_s if each_s else 0.0

    def _measured(self, each_s: float) -> None:
        known_s = self.prompt_s
        self._usual_s = known_s + _SMOOTHING * (each_s - known_s) if known_s else each_s
        self._measured_s = self.clock()


def _best(known: float, each: float) -> float:
    return each if not known else min(known * _FADING, each)
