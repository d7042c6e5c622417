"""Scaling and truncation of lengths, openly: what was dropped or clipped is said in the notes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from loadgen.demand import Chain, Demand
from loadgen.failure import LoadgenError
from loadgen.workload.base import Workload
from loadgen.workload.trace import TraceWorkload


class Long(StrEnum):
    DROP = "drop"
    CLIP = "clip"


@dataclass(frozen=True, slots=True)
class Shape:
    """Limits of 0 mean none. A session with one turn too long is dropped, or clipped from that turn on."""

    max_input: int = 0
    max_output: int = 0
    max_total: int = 0
    on_long: Long = Long.DROP
    scale_input: float = 1.0
    scale_output: float = 1.0

    @property
    def neutral(self) -> bool:
        return self == Shape(on_long=self.on_long)

    def apply(self, chain: Chain) -> Chain | None:
        scaled = tuple(self._scale(d) for d in chain)
        if all(self._fits(d) for d in scaled):
            return scaled
        return None if self.on_long is Long.DROP else tuple(self._clip(d) for d in scaled)

    def describe(self) -> str:
        limits = (("input", self.max_input), ("output", self.max_output), ("total", self.max_total))
        return ", ".join(f"{name} ≤ {limit}" for name, limit in limits if limit)

    def _scale(self, d: Demand) -> Demand:
        if self.scale_input == self.scale_output == 1:
            return d
        prompt = max(1, round(d.prompt_tokens * self.scale_input))
        output = max(1, round(d.output_tokens * self.scale_output))
        return _cut(replace(d, output_tokens=output), prompt)

    def _fits(self, d: Demand) -> bool:
        return (
            (not self.max_input or d.prompt_tokens <= self.max_input)
            and (not self.max_output or d.output_tokens <= self.max_output)
            and (not self.max_total or d.total_tokens <= self.max_total)
        )

    def _clip(self, d: Demand) -> Demand:
        output = min(d.output_tokens, self.max_output or d.output_tokens)
        prompt = min(d.prompt_tokens, self.max_input or d.prompt_tokens)
        if self.max_total and prompt + output > self.max_total:
            output = min(output, self.max_total - 1)
            prompt = min(prompt, self.max_total - output)
        return _cut(replace(d, output_tokens=output), prompt)


def _cut(d: Demand, prompt_tokens: int) -> Demand:
    """Another prompt length. A longer prompt keeps its prefix ids; the rest is its own."""
    blocks = -(-prompt_tokens // d.block_tokens)
    return replace(d, prompt_tokens=prompt_tokens, prefix=d.prefix[:blocks])


@dataclass(frozen=True, slots=True)
class Shaped:
    """A family with limits: what does not fit is drawn again, or clipped."""

    inner: Workload
    shape: Shape

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def mean_turns(self) -> float:
        return self.inner.mean_turns

    def notes(self) -> Sequence[str]:
        done = "drawn again" if self.shape.on_long is Long.DROP else "clipped"
        return (*self.inner.notes(), f"lengths limited to {self.shape.describe() or 'scaled'}; longer ones are {done}")

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        kept: list[Chain] = []
        for _ in range(1000):
            drawn = self.inner.draw(None if count is None else count, rng)
            kept += [shaped for chain in drawn if (shaped := self.shape.apply(chain)) is not None]
            if count is None or len(kept) >= count:
                return kept[:count]
        raise LoadgenError(f"workload: {self.name} hardly ever fits {self.shape.describe()}")


def shaped(workload: Workload, shape: Shape) -> Workload:
    """Applies the shape; a trace is filtered once, and says how many rows that cost."""
    if shape.neutral:
        return workload
    if not isinstance(workload, TraceWorkload):
        return Shaped(workload, shape)
    applied = [(chain, shape.apply(chain)) for chain in workload.chains]
    kept = [after for _, after in applied if after is not None]
    changed = sum(after is not None and after != before for before, after in applied)
    lost = len(workload.chains) - len(kept)
    if not kept:
        raise LoadgenError(f"workload: nothing of {workload.name} fits {shape.describe()}")
    note = f"limits {shape.describe() or 'scaled'}: {lost} dropped, {changed} changed, of {len(workload.chains)}"
    return replace(workload, chains=tuple(kept), remarks=(*workload.remarks, note))
