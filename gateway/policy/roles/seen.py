"""What a worker's engine did, read off two of its states where it does not say it step by step. Pure."""

from dataclasses import dataclass

from gateway.policy.roles.law import StepLaw, Steps

#: Fewer steps than this between two states tell little: their ends lie somewhere within a step.
_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """State `number` of a worker, heard at `at_s`. Counters count since its epoch began; `computed_tokens` are those of prompts
    that were in no cache, `context_tokens` what the KV in use holds."""

    epoch: str
    number: int
    at_s: float
    steps: int
    computed_tokens: int
    generated_tokens: int
    running: int
    context_tokens: int

    def same_as(self, other: "Seen") -> bool:
        return (self.epoch, self.number) == (other.epoch, other.number)

    def follows(self, before: "Seen") -> bool:
        return self.epoch == before.epoch and self.steps >= before.steps


def decoded_between(before: Seen, after: Seen, law: StepLaw, chunk_tokens: int) -> Steps:
    """The steps that only decoded, as far as the states tell: nothing where the engine may have paused in between, or
    where prompts took half of the steps or more. Their part is taken off by the law as known.

    Prompts are taken to have come in as few chunks as possible.
    """
    steps, computed = after.steps - before.steps, max(0, after.computed_tokens - before.computed_tokens)
    busy = before.running > 0 and after.running > 0
    if not busy or steps < _FEWEST or not after.follows(before):
        return Steps()
    answers = (after.generated_tokens - before.generated_tokens) / steps
    context = (before.context_tokens + after.context_tokens) / 2
    chunks = -(-computed // chunk_tokens)
    decoding = steps - chunks
    if decoding <= steps / 2 or answers <= 0:
        return Steps()
    prompts_s = chunks * law.step_s(answers, context, computed / chunks) if chunks else 0.0
    seconds = after.at_s - before.at_s - prompts_s
    if seconds <= 0:
        return Steps()
    return Steps(decoding, seconds, max(1, round(answers * decoding)), round(context * decoding))


def computed_in(tokens_per_s: float, tokens: int, state: Seen | None, chunk_tokens: int) -> Steps:
    """One step of prompt tokens at the speed at which they have been computed, beside what runs there."""
    chunk = min(tokens, chunk_tokens)
    running, context = (state.running, state.context_tokens) if state else (0, 0)
    return Steps(
        chunk_steps=1,
        chunk_s=chunk / tokens_per_s,
        chunk_tokens=chunk,
        chunk_answers=running,
        chunk_context_tokens=context,
    )
