"""Uneven experts: how much more than its share the slowest rank of an expert-parallel group has to do.

How often experts are chosen follows a power law whose Gini coefficient is given; which of them are the popular ones is drawn
anew for each layer, from a seed. Experts lie on the ranks in their order, as many on each, and a layer waits for the rank
with the most tokens. Assumed: shares stay as they are over the run, and no expert is copied or moved. That a step
of few tokens is uneven by chance, too, is left out.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engine.simulated.cost.grid import Curve
from engine.simulated.cost.models import ModelShape
from engine.simulated.cost.parameters import parameters_of
from engine.simulated.cost.table import Layout, TokenTimes

#: Of the power law's exponent: beyond, one expert does everything.
_STEEPEST, _PRECISION = 32.0, 1e-6


@dataclass(frozen=True)
class ExpertLoad:
    """`layers` of `experts`, `chosen` of them for a token, on `ranks`. `gini` 0 is an even load."""

    experts: int
    chosen: int
    layers: int
    ranks: int
    gini: float
    seed: int = 0

    @cached_property
    def popularity(self) -> tuple[float, ...]:
        """Shares of the experts of a layer, the most popular first."""
        low, high = 0.0, _STEEPEST
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (middle, high) if _gini(_power_law(self.experts, middle)) < self.gini else (low, middle)
        return _power_law(self.experts, low)

    @cached_property
    def rank_shares(self) -> tuple[tuple[float, ...], ...]:
        """Layer by layer, the share of the tokens that each rank computes."""
        draw, each = random.Random(self.seed), self.experts // self.ranks
        found = []
        for _ in range(self.layers):
            order = list(self.popularity)
            draw.shuffle(order)
            found.append(tuple(sum(order[rank * each : (rank + 1) * each]) for rank in range(self.ranks)))
        return tuple(found)

    @cached_property
    def slowest(self) -> float:
        """Tokens of the slowest rank of a layer over an even share, on the mean over layers."""
        return sum(max(shares) for shares in self.rank_shares) * self.ranks / self.layers

    @property
    def hottest(self) -> float:
        """Tokens of the most popular expert over an even share."""
        return self.popularity[0] * self.experts

    def tokens_by_rank(self, tokens: int) -> list[int]:
        """Of so many tokens that went through all layers: what each rank's experts computed, a layer on the mean."""
        means = [sum(shares[rank] for shares in self.rank_shares) / self.layers for rank in range(self.ranks)]
        return [round(tokens * self.chosen * mean) for mean in means]


def _power_law(count: int, exponent: float) -> tuple[float, ...]:
    weights = [rank**-exponent for rank in range(1, count + 1)]
    whole = sum(weights)
    return tuple(weight / whole for weight in weights)


def _gini(falling: Sequence[float]) -> float:
    """Of shares that add up to 1: 0 where all are equal."""
    count = len(falling)
    return sum((count + 1 - 2 * place) * share for place, share in enumerate(falling, 1)) / count


def expert_load(shape: ModelShape, ranks: int, gini: float, seed: int) -> ExpertLoad:
    """Raises ValueError for a dense model."""
    if shape.experts is None:
        raise ValueError(f"{shape.name} is dense: it has no experts whose load could be uneven")
    layers = shape.layers - shape.experts.dense_layers
    return ExpertLoad(shape.experts.count, shape.experts.chosen, layers, ranks, gini, seed)


def uneven(layout: Layout, shape: ModelShape, load: ExpertLoad) -> Layout:
    """The layout with the experts' part of every step as long as the slowest rank takes for it.

    That rank computes as in an even step of `slowest` times as many tokens; so a step that waits for weights hardly becomes
    longer, and one that waits for products does by as much.
    """
    if load.slowest <= 1:
        return layout
    share = _experts_share(shape)
    return replace(
        layout,
        step=_uneven(layout.step, load.slowest, share),
        decode=_uneven(layout.decode, load.slowest, share),
    )


def _experts_share(shape: ModelShape) -> float:
    """Of the time that depends on tokens, but for exchange: by the products, of which each parameter is one. Projections of
    latent attention are in the attention's own tables."""
    count = parameters_of(shape)
    others = count.feed_forward + count.embeddings // 2 + (0 if shape.latent else count.attention)
    return count.routed_active / (count.routed_active + others)


def _uneven(times: TokenTimes, slowest: float, share: float) -> TokenTimes:
    """Knots also where the slowest rank's tokens meet one."""
    zeros = [0.0] * len(times.tokens)
    total, memory = Curve(times.tokens, times.total_s), Curve(times.tokens, times.memory_s or zeros)
    collective = Curve(times.tokens, times.collective_s or zeros)

    def computing_s(tokens: float) -> float:
        return total.at(tokens) - collective.at(tokens)

    earlier = {max(1, round(knot / slowest)) for knot in times.tokens}
    knots = sorted({*times.tokens, *(knot for knot in earlier if knot >= times.tokens[0])})
    found: list[float] = []
    for knot in knots:
        longer_s = share * max(0.0, computing_s(knot * slowest) - computing_s(knot))
        found.append(max(total.at(knot) + longer_s, found[-1] if found else 0.0))
    parts = (tuple(part.at(knot) for knot in knots) for part in (memory, collective))
    return TokenTimes(tuple(knots), tuple(found), *parts)
