"""How long an engine's step takes, learnt from the steps that were seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, hypot, sqrt

from proto.worker import StepTotals

#: Fewer prompt tokens a step than this tell of the weights' time rather than of the tokens'.
_TELLING_TOKENS = 256
#: Share of the newest window in what is known of the token's time, and of the sizes'.
_SMOOTHING = 0.05
#: Of the tokens that steps were to have, so much tells that all of them had.
_FULL = 0.95
#: Sizes of steps are told apart by so many tokens: kernels compute whole tiles.
_TILE = 128
#: How much dearer or cheaper than the law a step of some size can be. What is beyond that comes of something else.
_DEARER, _CHEAPER = 2.0, 0.8
#: How much of what was known of steps without prompts is kept when another such step is seen.
_KEPT = 0.999


@dataclass(slots=True)
class StepLaw:
    """A step takes hypot(`weights_s`, `token_s` × tokens computed) + `context_s` × KV tokens read.

    Weights are read and arithmetic is done at the same time, so the longer of the two counts, with a soft corner; the
    KV is read after. The first values are rough ones for a model of 30 B on one GPU and last until the first windows.
    Steps with prompts in them differ from this by their size, by a factor that is learnt for each: 1,040 tokens may take a
    tenth longer than 1,024. A size that was not seen yet is taken to be as the law says.
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
    _sizes: dict[int, float] = field(default_factory=dict)

    def step_s(self, answers: float, context_tokens: float, chunk_tokens: float = 0.0) -> float:
        tokens = answers + chunk_tokens
        computed_s = hypot(self.weights_s, self.token_s * tokens)
        if chunk_tokens:
            computed_s *= self._size(tokens)
        return computed_s + self.context_s * context_tokens

    def fastest(self, may_s: float, answers: int, context_tokens: float, most: int, slack: float) -> int:
        """Of the steps of up to `most` tokens that take no longer than `may_s`, the size of the shortest that computes prompts
        nearly as fast, within `slack`, as any; 0 when none has room for a prompt."""
        rates = {
            tokens: (tokens - answers) / self.step_s(answers, context_tokens, tokens - answers)
            for tokens in self._sizes_within(may_s - self.context_s * context_tokens, answers, most)
        }
        if not rates:
            return 0
        enough = (1 - slack) * max(rates.values())
        return min(tokens for tokens, rate in rates.items() if rate >= enough)

    def enough(self, prompts: int, within_s: float, answers: int, context_tokens: float, most: int) -> int:
        """The size of the shortest steps of whole tiles, up to `most`, that compute so many tokens of prompts in that time."""
        for tile in range(answers // _TILE + 1, ceil(most / _TILE)):
            chunk = tile * _TILE - answers
            if chunk * within_s >= prompts * self.step_s(answers, context_tokens, chunk):
                return tile * _TILE
        return most

    def _sizes_within(self, computed_s: float, answers: int, most: int) -> Iterator[int]:
        """Whole tiles, and what more the time allows."""
        for tile in range(answers // _TILE + 1, ceil(most / _TILE) + 1):
            tokens, least_s = min(tile * _TILE, most), computed_s / self._sizes.get(tile, 1.0)
            if hypot(self.weights_s, self.token_s * tokens) > least_s:
                square = least_s * least_s - self.weights_s * self.weights_s
                tokens = int(sqrt(max(0.0, square)) / self.token_s)
            if tokens > max(answers, (tile - 1) * _TILE):
                yield tokens

    def _size(self, tokens: float) -> float:
        return self._sizes.get(ceil(tokens / _TILE), 1.0)

    def learn(self, steps: StepTotals, budget: int = 0) -> None:
        """`budget`: tokens that each of these steps was to have, if there were enough; 0 where that is not known."""
        if steps.decode_steps and steps.answers:
            self._decoded(steps)
        if steps.chunk_steps:
            self._computed(steps, budget)

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

    def _computed(self, steps: StepTotals, budget: int) -> None:
        """What a size is dearer than the law is told from what the law is off: the same window moves both a little. Steps of
        different sizes tell nothing of the one between."""
        count = steps.chunk_steps
        left_s = steps.chunk_s / count - self.context_s * steps.chunk_context_tokens / count
        tokens = (steps.chunk_tokens + steps.chunk_answers) / count
        if left_s <= 0:
            return
        size = self._size(tokens)
        if steps.chunk_tokens >= _TELLING_TOKENS * count and left_s > self.weights_s * size:
            seen_s = sqrt((left_s / size) ** 2 - self.weights_s * self.weights_s) / tokens
            self.token_s = self.token_s + _SMOOTHING * (seen_s - self.token_s) if self._told else seen_s
            self._told = True
        if self._told and (count == 1 or tokens >= _FULL * budget > 0):
            seen = left_s / hypot(self.weights_s, self.token_s * tokens)
            size += _SMOOTHING * (seen - size)
            self._sizes[ceil(tokens / _TILE)] = min(max(size, _CHEAPER), _DEARER)
