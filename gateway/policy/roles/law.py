"""How long an engine's step takes, learnt from the steps that were seen."""

from dataclasses import dataclass
from math import hypot, sqrt

from proto.worker import StepTotals

#: Fewer prompt tokens a step than this tell of the weights' time rather than of the tokens'.
_TELLING_TOKENS = 256
#: Share of the newest window in what is known of the token's time.
_SMOOTHING = 0.1
#: How much of what was known of steps without prompts is kept when another such step is seen.
_KEPT = 0.999


@dataclass(slots=True)
class StepLaw:
    """A step takes hypot(`weights_s`, `token_s` × tokens computed) + `context_s` × KV tokens read.

    Weights are read and arithmetic is done at the same time, so the longer of the two counts, with a soft corner; the
    KV is read after. The first values are rough ones for a model of 30 B on one GPU and last until the first windows.
    """

    weights_s: float = 0.020
    token_s: float = 1e-4
    context_s: float = 0.0
    _seen: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _told: bool = False

    def step_s(self, answers: float, context_tokens: float, chunk_tokens: float = 0.0) -> float:
        return hypot(self.weights_s, self.token_s * (answers + chunk_tokens)) + self.context_s * context_tokens

    def chunk_within(self, step_s: float, answers: float, context_tokens: float) -> float:
        """Prompt tokens that such a step may hold; negative when not even the answers fit."""
        left_s = step_s - self.context_s * context_tokens
        if left_s <= self.weights_s:
            return -float(answers)
        return sqrt(left_s * left_s - self.weights_s * self.weights_s) / self.token_s - answers

    def learn(self, steps: StepTotals) -> None:
        if steps.decode_steps and steps.answers:
            self._decoded(steps)
        if steps.chunk_steps and steps.chunk_tokens >= _TELLING_TOKENS * steps.chunk_steps:
            self._computed(steps)

    def _decoded(self, steps: StepTotals) -> None:
        """One line through all such steps: its height is the weights' time, its slope the context's."""
        count = steps.decode_steps
        context = steps.context_tokens / count
        tokens_s = hypot(self.weights_s, self.token_s * steps.answers / count) - self.weights_s
        seconds = steps.decode_s / count - tokens_s
        kept = _KEPT ** min(count, 1000)
        self._seen = self._seen * kept + count
        self._x = self._x * kept + count * context
        self._y = self._y * kept + count * seconds
        self._xx = self._xx * kept + count * context * context
        self._xy = self._xy * kept + count * context * seconds
        mean_x, mean_y = self._x / self._seen, self._y / self._seen
        spread = self._xx / self._seen - mean_x * mean_x
        if spread > 0.01 * mean_x * mean_x:
            slope = (self._xy / self._seen - mean_x * mean_y) / spread
            self.context_s = min(max(0.0, slope), 0.9 * mean_y / mean_x)
        self.weights_s = max(1e-6, mean_y - self.context_s * mean_x)

    def _computed(self, steps: StepTotals) -> None:
        count = steps.chunk_steps
        left_s = steps.chunk_s / count - self.context_s * steps.chunk_context_tokens / count
        if left_s <= self.weights_s:
            return
        tokens = (steps.chunk_tokens + steps.chunk_answers) / count
        seen_s = sqrt(left_s * left_s - self.weights_s * self.weights_s) / tokens
        self.token_s = self.token_s + _SMOOTHING * (seen_s - self.token_s) if self._told else seen_s
        self._told = True
