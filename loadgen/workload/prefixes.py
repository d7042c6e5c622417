"""Shared prefixes like those of a conversation service: a common system block, and prompts that continue earlier ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.result import Floats
from loadgen.workload.copula import correlated, phi
from loadgen.workload.quantiles import QuantileTable


@dataclass(frozen=True, slots=True)
class PrefixModel:
    """`continue_share` of the prompts extend an earlier one; `depth` is the share of their blocks that is common.

    `correlation` ties the depth, `continue_correlation` the continuing, to the prompt's length. All prompts begin with `system_blocks` common blocks.
    Parents are picked among the latest `memory` prompts.
    """

    block_tokens: int
    system_blocks: int
    continue_share: float
    depth: QuantileTable
    correlation: float = 0.0
    continue_correlation: float = 0.0
    memory: int = 1000

    def draw(self, prompt_tokens: Sequence[int], normal: Floats, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Block ids per prompt; `normal` is the standard normal behind each prompt's length."""
        noise = rng.standard_normal((len(prompt_tokens), 3))
        depth = self.depth.draw(phi(correlated(normal, noise[:, 0], self.correlation))).tolist()
        latent = correlated(normal, noise[:, 1], self.continue_correlation)
        continues = (phi(latent) > 1 - self.continue_share).tolist()
        picks = phi(noise[:, 2]).tolist()
        drawn: list[tuple[int, ...]] = []
        fresh = self.system_blocks
        for i, tokens in enumerate(prompt_tokens):
            blocks = -(-tokens // self.block_tokens)
            head = tuple(range(min(self.system_blocks, blocks)))
            if continues[i]:
                wanted = min(blocks, max(round(depth[i] * blocks), self.system_blocks + 1))
                head = max(head, self._parent(drawn, wanted, picks[i]), key=len)
            drawn.append(head + tuple(range(fresh, fresh + blocks - len(head))))
            fresh += blocks - len(head)
        return drawn

    def _parent(self, drawn: list[tuple[int, ...]], wanted: int, pick: float) -> tuple[int, ...]:
        """The first `wanted` blocks of a recent prompt that has them, else all of the longest."""
        recent = drawn[-self.memory :]
        deep = [prompt for prompt in recent if len(prompt) >= wanted]
        if deep:
            return deep[min(int(pick * len(deep)), len(deep) - 1)][:wanted]
        return max(recent, key=len, default=())[:wanted]
