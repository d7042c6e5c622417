"""Pipeline stages kept full: what a step costs when as many batches are in flight as there are stages.

A table gives one pass of one batch through all stages. vLLM keeps up to `stages` batches in flight, each with its
own sequences, first in, first out. So a *round*, in which every running sequence gets its token, lasts as long as one
pass of the heaviest of these batches: stages are equal, no batch overtakes another, and a sequence cannot begin its
next token before its last one is out. Fewer sequences than stages leave stages idle, which the pass time already shows.

Assumed: sequences are shared out evenly, and prompts so that no batch gets many more tokens than another. vLLM shares
out as sequences happen to come, which is never better; so pipelines look at least as good here as they are.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine.simulated.cost.profile import Profile
from engine.simulated.cost.step_cost import PrefillChunk, StepCost, StepTime


class PipelinedCost:
    """A StepCost whose step is one round. Rounds take at least one pass, and equal it with one stage."""

    def __init__(self, one_pass: StepCost, stages: int) -> None:
        """`one_pass` is the cost of one batch through all `stages`."""
        if stages < 1:
            raise ValueError(f"a pipeline has at least one stage, not {stages}")
        self._pass = one_pass
        self._stages = stages

    def step_s(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> float:
        return self._pass.step_s(
            *self._largest(decode_batch, decode_context_tokens), self._heaviest(prefill_chunks)
        )  # fmt: skip

    def breakdown(
        self, decode_batch: int, decode_context_tokens: int, prefill_chunks: Sequence[PrefillChunk] = ()
    ) -> StepTime:
        return self._pass.breakdown(
            *self._largest(decode_batch, decode_context_tokens), self._heaviest(prefill_chunks)
        )  # fmt: skip

    def decode_run_s(self, batch: int, context_tokens: int, steps: int) -> float:
        return self._pass.decode_run_s(*self._largest(batch, context_tokens), steps)

    def decode_steps_within(self, batch: int, context_tokens: int, seconds: float) -> int:
        return self._pass.decode_steps_within(*self._largest(batch, context_tokens), seconds)

    def _largest(self, batch: int, context_tokens: int) -> tuple[int, int]:
        """Sequences and context of the largest batch; its context grows by one token a sequence, as it must."""
        if batch <= 0:
            return batch, context_tokens
        largest = -(-batch // self._stages)
        return largest, context_tokens * largest // batch

    def _heaviest(self, chunks: Sequence[PrefillChunk]) -> Sequence[PrefillChunk]:
        """Chunks dealt longest first to the emptiest batch; those of the fullest."""
        if len(chunks) < 2 or self._stages == 1:
            return chunks
        batches: list[list[PrefillChunk]] = [[] for _ in range(self._stages)]
        tokens = [0] * self._stages
        for chunk in sorted(chunks, reverse=True):
            emptiest = tokens.index(min(tokens))
            batches[emptiest].append(chunk)
            tokens[emptiest] += chunk[0]
        return batches[tokens.index(max(tokens))]


def pipelined(profile: Profile) -> Profile:
    """The profile with its pipeline kept full; a step may then hold one token budget a stage."""
    if profile.pp == 1:
        return profile
    return replace(
        profile,
        cost=PipelinedCost(profile.cost, profile.pp),
        max_num_batched_tokens=profile.max_num_batched_tokens * profile.pp,
    )
