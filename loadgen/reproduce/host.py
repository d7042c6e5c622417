"""Time of the engine's own process in a step, which the kernel tables leave out: a what-if, the same for every run.

A scheduler handles each sequence of a step one by one, so its time grows with the sequences of *one* engine: eight
replicas share it out, one engine over eight GPUs does not. The default is none; nothing is fitted.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine.simulated.cost import PrefillChunk, Profile, StepCost, StepTime
from engine.simulated.cost.step_cost import steps_within


class HostCost:
    """Adds `sequence_s` for each sequence of a step. `hidden` when another batch computes meanwhile, as in a pipeline:
    then a round takes the longer of both."""

    def __init__(self, kernels: StepCost, sequence_s: float, *, hidden: bool) -> None:
        self._kernels = kernels
        self._sequence_s = sequence_s
        self._hidden = hidden

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        kernels = self._kernels.step_s(decode_batch, decode_context_tokens, prefill_chunks)
        return kernels + self._extra_s(kernels, decode_batch + len(prefill_chunks))

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        parts = self._kernels.breakdown(decode_batch, decode_context_tokens, prefill_chunks)
        return replace(
            parts, overhead_s=parts.overhead_s + self._extra_s(parts.total_s, decode_batch + len(prefill_chunks))
        )

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        if batch <= 0 or steps <= 0:
            return 0.0
        host = self._sequence_s * batch
        if not self._hidden:
            return self._kernels.decode_run_s(batch, context_tokens, steps) + steps * host
        short = self._shorter(batch, context_tokens, steps, host)
        return short * host + self._kernels.decode_run_s(batch, context_tokens + short * batch, steps - short)

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        return steps_within(self, batch, context_tokens, seconds) if batch > 0 else 0

    def _extra_s(self, kernels_s: float, sequences: int) -> float:
        host = self._sequence_s * max(sequences, 0)
        return max(host - kernels_s, 0.0) if self._hidden else host

    def _shorter(self, batch: int, context_tokens: int, steps: int, host: float) -> int:
        """How many of the steps have kernels shorter than the host's time; contexts grow, so they come first."""
        low, high = 0, steps
        while low < high:
            middle = (low + high) // 2
            if self._kernels.step_s(batch, context_tokens + middle * batch) < host:
                low = middle + 1
            else:
                high = middle
        return low


def with_host(profile: Profile, sequence_s: float) -> Profile:
    """The profile of an engine whose scheduler takes that long for each sequence of a step."""
    if not sequence_s:
        return profile
    return replace(profile, cost=HostCost(profile.cost, sequence_s, hidden=profile.pp > 1))
