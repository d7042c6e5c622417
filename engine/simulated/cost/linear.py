"""A cost that is linear in the work of a step: for tests, demonstrations and an engine at zero cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.simulated.cost.step_cost import PrefillChunk, StepTime, steps_within


@dataclass(frozen=True, slots=True)
class LinearCost:
    """base + tokens computed + KV tokens read; attention of a prompt counts its token pairs."""

    base_s: float = 0.0
    token_s: float = 0.0
    context_token_s: float = 0.0
    token_pair_s: float = 0.0

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        if not decode_batch and not prefill_chunks:
            return 0.0
        total = self.base_s + decode_batch * self.token_s + decode_context_tokens * self.context_token_s
        for new, before in prefill_chunks:
            total += new * self.token_s + new * (before + new / 2) * self.token_pair_s
        return total

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        total = self.step_s(decode_batch, decode_context_tokens, prefill_chunks)
        memory = decode_context_tokens * self.context_token_s
        overhead = self.base_s if total else 0.0
        return StepTime(total - memory - overhead, memory, 0.0, overhead)

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        if batch <= 0 or steps <= 0:
            return 0.0
        grown = batch * steps * (steps - 1) / 2 * self.context_token_s
        return steps * self.step_s(batch, context_tokens) + grown

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        return steps_within(self, batch, context_tokens, seconds)
