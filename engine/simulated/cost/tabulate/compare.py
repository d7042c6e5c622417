"""Random steps, and what source and table say they take."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.simulated.cost.step_cost import StepCost


@dataclass(frozen=True, slots=True)
class Step:
    """`prompts` chunks of `new` tokens on `context` cached tokens beside `batch` decodes at `decode_context`.

    With parts > 1 the step stands for the mean over the `parts` equal chunks of one prompt, which is all that
    the source says of chunked prefill beside decodes.
    """

    kind: str
    batch: int = 0
    decode_context: int = 0
    prompts: int = 0
    new: int = 0
    context: int = 0
    parts: int = 1

    def suspect(self, *, latent: bool) -> str:
        """Why the source's own answer is not to be trusted here; empty when nothing speaks against it."""
        if self.kind == "mixed" and latent:
            return "latent attention: mixed steps leave out the decodes' KV reads"
        if self.kind == "prefill" and self.new < 128 and 0 < self.context < 512:
            return "short prompt on few cached tokens: falls with context at a change of kernel"
        return ""


class Answers(Protocol):
    """The totals a source gives."""

    def decode_s(self, batch: int, context: int) -> float: ...
    def prefill_s(self, prompts: int, tokens: int, context: int) -> float: ...
    def mixed_s(self, tokens: int, decodes: int, prompt: int) -> float: ...


def source_s(source: Answers, step: Step) -> float:
    if step.kind == "decode":
        return source.decode_s(step.batch, step.decode_context)
    if step.kind == "prefill":
        return source.prefill_s(step.prompts, step.new, step.context)
    return source.mixed_s(step.prompts * step.new, step.batch, step.parts * step.new)


def table_s(cost: StepCost, step: Step) -> float:
    total = step.batch * step.decode_context
    if step.parts > 1:
        chunks = [[(step.new, part * step.new)] for part in range(step.parts)]
        return sum(cost.step_s(step.batch, total, chunk) for chunk in chunks) / step.parts
    return cost.step_s(step.batch, total, [(step.new, step.context)] * step.prompts)


def random_steps(seed: int, kind: str, count: int, *, kv_tokens: int, window: int) -> list[Step]:
    """Log-uniform sizes, as far as they fit the KV space and the window."""
    draw, steps = random.Random(seed), list[Step]()
    while len(steps) < count:
        step = _random_step(draw, kind, window)
        held = step.batch * step.decode_context + step.prompts * (step.context + step.parts * step.new)
        if held <= kv_tokens and step.context + step.new * step.parts <= window:
            steps.append(step)
    return steps


def _random_step(draw: random.Random, kind: str, window: int) -> Step:
    if kind == "decode":
        return Step(kind, _log(draw, 1, 512), _log(draw, 16, window))
    if kind == "prefill":
        prompts = 1 if draw.random() < 0.7 else _log(draw, 2, 16)
        context = 0 if draw.random() < 0.5 else _log(draw, 16, 65_536)
        return Step(kind, prompts=prompts, new=_log(draw, 16, 32_768 // prompts), context=context)
    # The source's mixed step ties the decodes' context to the prompt's length.
    batch, new, shape = _log(draw, 1, 512), _log(draw, 16, 8192), draw.random()
    if shape < 0.4:
        return Step(kind, batch, new, 1, new)
    if shape < 0.55:
        prompts = draw.randint(2, 8)
        return Step(kind, batch, new, prompts, new)
    parts = _log(draw, 2, 16)
    return Step(kind, batch, parts * new, 1, new, parts=parts)


def _log(draw: random.Random, low: int, high: int) -> int:
    return min(high, round(float(low * (high / low) ** draw.random())))


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
