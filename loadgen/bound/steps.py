"""Steps that an engine could take, as columns of a linear program: time spent and work done.

A continuum of steps is covered by cells. A cell is charged the time of its smallest corner and credited with the work of
its largest, so what is left out between grid points can only make the bound looser, never wrong. That rests on two
properties of a StepCost: more work never costs less, and a prompt costs the same beside long and short contexts.
"""

from dataclasses import dataclass

import numpy as np

from engine.simulated.cost import StepCost
from loadgen.bound.layout import Pool
from loadgen.bound.work import Work
from loadgen.result import Floats

#: A cell's ends differ by this factor, or by its least width.
_RATIO = 1.06
_CONTEXT_WIDTH, _PROMPT_WIDTH = 64, 8
#: In how many equal pieces a step's prompt tokens may come.
_PIECES = (2, 4, 32)


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry a cell, all arrays alike: seconds, and tokens decoded, context read and prompt computed in them."""

    seconds: Floats
    decodes: Floats
    contexts: Floats
    prompts: Floats

    def __len__(self) -> int:
        return len(self.seconds)


def columns_of(pool: Pool, work: Work) -> Columns:
    """Every step that engines of this pool may take on such requests."""
    cost, budget = pool.profile.cost, pool.profile.max_num_batched_tokens
    prompts = _cells(1, budget, _PROMPT_WIDTH) if pool.prefills else []
    parts: list[Columns] = []
    if prompts:
        parts.append(_alone(cost, prompts, work))
    if pool.decodes:
        parts.append(_decoding(pool, prompts, work))
    fields = ("seconds", "decodes", "contexts", "prompts")
    return Columns(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


class Remembered:
    """`columns_of` for many layouts that are made of few engines: the last few pools are kept, whatever their number."""

    def __init__(self, most: int = 12) -> None:
        self._most = most
        self._kept: dict[tuple[int, ...], tuple[Pool, Columns]] = {}

    def __call__(self, pool: Pool, work: Work) -> Columns:
        # what steps there are hangs on the lengths that occur, not on how many of each; a kept pool's id is nobody else's
        lengths = (work.least_prompt, work.least_context, work.most_context, work.most_shared)
        key = (id(pool.profile), pool.prefills, pool.decodes, *lengths)
        if key not in self._kept:
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (pool, columns_of(pool, work))
        return self._kept[key][1]


def _cells(low: int, high: int, width: int = 1) -> list[tuple[int, int]]:
    """Whole numbers from low to high in ranges, each a few percent or `width` numbers wide."""
    cells = []
    while low <= high:
        top = min(max(low + width - 1, int(low * _RATIO)), high)
        cells.append((low, top))
        low = top + 1
    return cells


def _alone(cost: StepCost, prompts: list[tuple[int, int]], work: Work) -> Columns:
    seconds = np.array([_least_prompt_s(cost, 0, 0, low, work) for low, _ in prompts])
    tokens = np.array([float(high) for _, high in prompts])
    none = np.zeros(len(prompts))
    return Columns(seconds, none, none, tokens)


def _decoding(pool: Pool, prompts: list[tuple[int, int]], work: Work) -> Columns:
    """Decode steps, bare and with prompts beside them."""
    profile = pool.profile
    cost, kv_tokens = profile.cost, profile.kv_tokens_total
    shared = work.most_shared
    own = max(1, work.least_context - shared)  # what even the shortest context holds for itself
    most = min(profile.max_num_seqs, profile.max_num_batched_tokens, max(1, kv_tokens // own))
    batches = _cells(1, most)
    contexts = _cells(work.least_context, min(work.most_context, max(kv_tokens, work.least_context)), _CONTEXT_WIDTH)
    bare = np.array([[cost.step_s(b, b * c) for c, _ in contexts] for b, _ in batches])
    decodes = np.array([float(high) for _, high in batches])[:, None] * np.ones(len(contexts))
    reads = np.minimum(decodes * np.array([float(high) for _, high in contexts]), kv_tokens + decodes * shared)
    holds = np.array([[b * max(1, c - shared) <= kv_tokens for c, _ in contexts] for b, _ in batches])
    least = work.least_context
    beside = np.array(
        [
            [0.0, *(_least_prompt_s(cost, b, b * least, low, work) - cost.step_s(b, b * least) for low, _ in prompts)]
            for b, _ in batches
        ]
    )
    tokens = np.array([0.0, *(float(high) for _, high in prompts)])
    # Axes: batch, context, prompt tokens.
    shape = (*bare.shape, len(tokens))
    kept = np.broadcast_to(holds[:, :, None], shape).ravel()
    arrays = (
        np.maximum(bare[:, :, None] + beside[:, None, :], bare[:, :, None]),
        np.broadcast_to(decodes[:, :, None], shape),
        np.broadcast_to(reads[:, :, None], shape),
        np.broadcast_to(tokens[None, None, :], shape),
    )
    return Columns(*(array.ravel()[kept] for array in arrays))


def _least_prompt_s(cost: StepCost, batch: int, context: int, tokens: int, work: Work) -> float:
    """The cheapest way found to put that many prompt tokens into a step: as one chunk or as several equal ones.

    Attention grows with the square of a prompt, its start-up with the number of prompts; past some number of prompts
    the first no longer matters. In a step at most two prompts are cut by the token budget, so there are no more
    pieces than whole prompts and two.
    """
    most = tokens // work.least_prompt + 2
    ways = [[(tokens, 0)]]
    for count in {min(pieces, most) for pieces in _PIECES}:
        size, rest = divmod(tokens, count)
        if size:
            ways.append([(size + 1, 0)] * rest + [(size, 0)] * (count - rest))
    return min(cost.step_s(batch, context, way) for way in ways)
