"""Where an engine's time went, by cause (R-53)."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.simulated.cost import PrefillChunk, StepCost


@dataclass(slots=True)
class TimeAccount:
    """Seconds by cause; `prefill_s` counts steps with prompts in them, whatever else they did."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    collective_s: float = 0.0
    overhead_s: float = 0.0
    prefill_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.compute_s + self.memory_s + self.collective_s + self.overhead_s

    @property
    def collective_share(self) -> float:
        return self.collective_s / self.total_s if self.total_s else 0.0

    def add_step(self, cost: StepCost, batch: int, context_tokens: int, chunks: Sequence[PrefillChunk]) -> None:
        self._add(cost, batch, context_tokens, chunks, 1.0)

    def add_run(self, cost: StepCost, batch: int, context_tokens: int, steps: int, seconds: float) -> None:
        """A stride of decode steps, which took `seconds`; split as the step in its middle is."""
        middle = context_tokens + batch * (steps - 1) // 2
        once = cost.step_s(batch, middle)
        self._add(cost, batch, middle, (), seconds / once if once else 0.0)

    def _add(
        self, cost: StepCost, batch: int, context_tokens: int, chunks: Sequence[PrefillChunk], times: float
    ) -> None:
        parts = cost.breakdown(batch, context_tokens, chunks)
        self.compute_s += parts.compute_s * times
        self.memory_s += parts.memory_s * times
        self.collective_s += parts.collective_s * times
        self.overhead_s += parts.overhead_s * times
        if chunks:
            self.prefill_s += parts.total_s * times
