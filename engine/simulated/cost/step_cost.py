"""What one iteration of an engine costs in time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: (new tokens, tokens already in the KV cache) of one prompt's share of a step.
PrefillChunk = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step by cause; they add up to the step.

    Compute grows with tokens (matrix products, attention of prompts), memory with bytes read (decode
    attention, element-wise kernels), collective with what the ranks exchange. Overhead is host time.
    """

    compute_s: float
    memory_s: float
    collective_s: float
    overhead_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.compute_s + self.memory_s + self.collective_s + self.overhead_s


class StepCost(Protocol):
    """Time of an iteration. Pure: equal arguments give equal answers, and more work never costs less.

    `decode_context_tokens` is the sum of the contexts of all decoding sequences.
    """

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        """One step that decodes one token for each sequence and computes the chunks beside them."""
        ...

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        """The same step by cause; its total equals `step_s`."""
        ...

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        """`steps` decode steps in a row, every sequence growing by one token a step, without a loop over steps.

        Equals sum(step_s(batch, context_tokens + k * batch) for k in range(steps)).
        """
        ...

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        """The most steps of `decode_run_s` that end within `seconds`: its inverse."""
        ...

    def __hash__(self) -> int:
        """What was found out of a cost is kept for all engines that have it."""
        ...


def steps_within(cost: StepCost, batch: int, context_tokens: int, seconds: float) -> int:
    """Inverts `decode_run_s` by doubling and bisection; for costs without a closed form of their own.

    A cost of zero has no inverse: it answers with as many steps as fit a 2**40 bound.
    """
    high = 1
    while high < 1 << 40 and cost.decode_run_s(batch, context_tokens, high) <= seconds:
        high *= 2
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        if cost.decode_run_s(batch, context_tokens, middle) <= seconds:
            low = middle
        else:
            high = middle
    return low
