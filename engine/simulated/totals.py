"""What an engine's steps have added up to, those with prompts in them apart."""

from dataclasses import dataclass, fields

from engine.simulated.step import Step
from proto import worker


@dataclass(slots=True)
class StepTotals:
    """The sums of `proto.worker.StepTotals` while they grow."""

    decode_steps: int = 0
    decode_s: float = 0.0
    answers: int = 0
    context_tokens: int = 0
    chunk_steps: int = 0
    chunk_s: float = 0.0
    chunk_tokens: int = 0
    chunk_answers: int = 0
    chunk_context_tokens: int = 0

    def add(self, step: Step, seconds: float) -> None:
        if step.chunks:
            self.chunk_steps += 1
            self.chunk_s += seconds
            self.chunk_tokens += sum(tokens for tokens, _ in step.chunks)
            self.chunk_answers += step.decodes
            self.chunk_context_tokens += step.context_tokens
        else:
            self.decode_steps += 1
            self.decode_s += seconds
            self.answers += step.decodes
            self.context_tokens += step.context_tokens

    def add_run(self, batch: int, context_tokens: int, steps: int, seconds: float) -> None:
        """A stride of decode steps; `context_tokens` are those of its first."""
        self.decode_steps += steps
        self.decode_s += seconds
        self.answers += batch * steps
        self.context_tokens += context_tokens * steps + batch * steps * (steps - 1) // 2

    def told(self) -> worker.StepTotals:
        """As they are now."""
        return worker.StepTotals(*[getattr(self, each.name) for each in fields(worker.StepTotals)])
