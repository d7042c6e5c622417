"""From the moments of what will be held to the chance of holding too much. Pure, vectorised over steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erfc, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from gateway.policy.admission.survival import Table, limit_of, outlived
from gateway.policy.estimate.estimate import Floats

_NORMAL = NormalDist()
#: A request that is alive with less than this chance no longer counts towards the most that can be held.
_NEGLIGIBLE = 1e-6
_TINY = 1e-12
_SQRT_HALF = sqrt(0.5)


class Moments(NamedTuple):
    """Index of each moment in an array (moments x steps), all additive over requests, in blocks."""

    MEAN: int = 0
    VARIANCE: int = 1  # of independent lengths
    THIRD: int = 2  # third central moment: few large requests make the sum lopsided
    COMMON: int = 3  # how far the mean moves when all lengths are off together by one standard deviation
    TOP: int = 4  # everything that can still be alive


M = Moments()
COUNT = len(M)


@dataclass(frozen=True, slots=True)
class Budget:
    """`epsilon`: accepted chance of overrunning at any one step; `pool_blocks`: held back for what goes wrong."""

    epsilon: float = 0.01
    pool_blocks: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < 0.5 or self.pool_blocks < 0:
            raise ValueError(f"not a budget: {self}")

    @property
    def z(self) -> float:
        return _z(self.epsilon)


@lru_cache(maxsize=64)  # every decision asks
def _z(epsilon: float) -> float:
    return _NORMAL.inv_cdf(1.0 - epsilon)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a worker is going to hold, in blocks. `peak_blocks` is exceeded with chance epsilon at its worst step.

    `risk`: the chance of exceeding `limit_blocks` at the worst step; `peak_step` counts decode steps from now.
    """

    peak_blocks: float
    mean_peak_blocks: float
    limit_blocks: float
    risk: float
    peak_step: int

    @property
    def headroom_blocks(self) -> float:
        """Room that is left after growth: the score for routing (R-41). Negative: it does not fit."""
        return self.limit_blocks - self.peak_blocks


def shape_of(
    table: Table, started: Floats, now: float, steps: Floats, spread: Floats, stretch: Floats
) -> tuple[Floats, Floats]:
    """What does not depend on the prompt: (tokens generated, N x K; weights of the powers of blocks, N x M x K).

    `spread` and `stretch` are N x 1, and so is `started`: the step at which nothing is or was generated; in the future
    for one whose prompt is being computed elsewhere. One that ends at its limit between two steps counts at the later
    one: many that share a limit peak together just before it.
    """
    tokens = now + steps[None, :] - started
    before = tokens.copy()
    before[:, 1:] -= steps[1:] - steps[:-1]
    tokens = np.where(before < table.limits, np.minimum(tokens, table.limits - 1.0), tokens)
    generated = np.maximum(0.0, now - started)
    stretches = (stretch, stretch * (1.0 + spread)) if spread.any() else (stretch,)
    chances = table.given(tokens, generated, *stretches)
    alive, longer = chances[0], chances[-1]
    weights = np.empty((len(started), COUNT, len(steps)))
    weights[:, M.MEAN] = alive
    weights[:, M.VARIANCE] = alive * (1.0 - alive)
    weights[:, M.THIRD] = weights[:, M.VARIANCE] * (1.0 - 2.0 * alive)
    weights[:, M.COMMON] = longer - alive
    weights[:, M.TOP] = alive > _NEGLIGIBLE
    return tokens, weights


def shape_of_one(
    lengths: Floats, limit: float, started: float, steps: Floats, spread: float, stretch: float
) -> tuple[Floats, Floats]:
    """The same of one answer, now being 0: K and M x K."""
    tokens = steps - started
    limit = limit_of(lengths, limit)
    end = int(tokens.searchsorted(limit))
    np.minimum(tokens[:end], limit - 1.0, out=tokens[:end])
    if 0 < end < len(tokens):
        tokens[end] = limit - 1.0
    alive, longer = outlived(lengths, limit, tokens, max(0.0, -started), stretch, stretch * (1.0 + spread))
    weights = np.empty((COUNT, len(steps)))
    mean, variance, third, common, top = weights
    mean[:] = alive
    np.subtract(1.0, alive, out=variance)
    variance *= alive
    np.multiply(alive, -2.0, out=third)
    third += 1.0
    third *= variance
    np.subtract(longer, alive, out=common)
    top[:] = alive > _NEGLIGIBLE
    return tokens, weights


def contribution(tokens: Floats, weights: Floats, prompt_tokens: Floats, size: int) -> Floats:
    """Moments of each request at each future step, N x M x K; `prompt_tokens` is N x 1. Nothing before it starts.

    `weights` is used up: the moments come in its place.
    """
    blocks = np.ceil((tokens + (prompt_tokens + 1.0)) / size)
    blocks *= tokens >= 0.0
    weights *= blocks[:, None, :]
    weights[:, M.VARIANCE] *= blocks
    blocks *= blocks
    weights[:, M.THIRD] *= blocks
    return weights


def contribution_of_one(tokens: Floats, weights: Floats, prompt_tokens: int, size: int) -> Floats:
    """The same of one request, M x K, from `tokens` (K) and `weights` (M x K), which stay as they are."""
    blocks = tokens + (prompt_tokens + 1.0)
    blocks /= size
    np.ceil(blocks, out=blocks)
    if tokens[0] < 0.0:
        blocks *= tokens >= 0.0
    moments: Floats = weights * blocks
    variance, third = moments[M.VARIANCE : M.THIRD + 1]
    variance *= blocks
    blocks *= blocks
    third *= blocks
    return moments


def quantile(moments: Floats, z: float, epsilon: float) -> Floats:
    """Blocks exceeded with chance epsilon, whose normal quantile is z, per step; `moments` is M x K.

    Cornish-Fisher: the normal quantile moved by the skewness. It is bounded by what can exist at all, and by Markov's
    inequality, which rules where a few requests live on with less chance than epsilon.
    """
    mean, _, _, common, top = moments
    high = _unbounded(moments, z)
    np.minimum(high, top, out=high)
    markov = common * z
    markov += mean
    markov /= epsilon
    np.minimum(high, markov, out=high)
    return high


def _unbounded(moments: Floats, z: float) -> Floats:
    """The same by Cornish-Fisher alone."""
    mean, variance, third, common, _ = moments
    # In place where it can be: every decision comes by here.
    deviation2 = common * common
    deviation2 += variance
    np.maximum(deviation2, _TINY, out=deviation2)
    lift = np.maximum(third, 0.0)
    lift /= deviation2
    lift *= max(0.0, (z * z - 1.0) / 6.0)
    high: Floats = np.sqrt(deviation2, out=deviation2)
    high *= z
    high += mean
    high += lift
    return high


def chance(moments: Sequence[float], limit_blocks: float, z: float) -> float:
    """P(blocks held > limit) at one step: `quantile`, solved for epsilon."""
    mean, variance, third, common, top = moments
    if top <= limit_blocks:
        return 0.0
    deviation = sqrt(max(_TINY, variance + common * common))
    score = (limit_blocks - mean) / deviation
    lift = max(0.0, third) / deviation**3 / 6.0
    # Below 1 `quantile` has no lift: it would be negative.
    if score > 1.0 and lift > 1e-9:
        score = max(1.0, (sqrt(1.0 + 4.0 * lift * (lift + score)) - 1.0) / (2.0 * lift))
    normal = 0.5 * erfc(score * _SQRT_HALF)
    return min(normal, (mean + z * common) / limit_blocks) if limit_blocks > 0 else normal


def outlook(moments: Floats, steps: Floats, limit_blocks: float, budget: Budget) -> Outlook:
    """`moments` is M x K. The risk is that of the worst step, not of the union of all steps."""
    z, epsilon = budget.z, budget.epsilon
    peaks = _unbounded(moments, z)
    worst = int(peaks.argmax())
    mean, _, _, common, top = column = moments[:, worst].tolist()
    peak = peaks.item(worst)
    # What keeps to its bounds where it is highest does so elsewhere, as far as it matters.
    if peak > min(top, (common * z + mean) / epsilon):
        peaks = quantile(moments, z, epsilon)
        worst = int(peaks.argmax())
        peak, column = peaks.item(worst), moments[:, worst].tolist()
    return Outlook(
        peak, highest(moments[M.MEAN]), limit_blocks, chance(column, limit_blocks, z), int(steps.item(worst))
    )


def highest(values: Floats) -> float:
    """The place first: numpy finds that in a third of the time."""
    return values.item(int(values.argmax()))
