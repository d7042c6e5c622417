"""A prior taken apart: many kinds of traffic, each much narrower than all of them together. Pure.

A wide prior says that little is known, not that the answers of one service are spread like that. Those that have ended and
those under way tell which kinds are there: when fifty answers have all passed 600 tokens, they are no chat, and the next
ones are not either. The shares of the kinds are the mean of a Dirichlet's, by a few steps of expectation and maximisation.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from gateway.policy.estimate.bins import Bins
from gateway.policy.estimate.estimate import Floats

#: Deviation of the logarithm of one kind's lengths, and the distance from one kind to the next.
_SIGMA, _APART = 0.5, 0.25
#: Answers that the shares of the prior are worth.
_WORTH = 2.0
_STEPS = 10
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Parts:
    """`shares` (K,) of the kinds before anything is seen; `mass` (K, bins) of each; `alive`: the chance to get so far."""

    shares: Floats
    mass: Floats
    alive: Floats

    @classmethod
    def of(cls, prior: Floats, bins: Bins) -> Self:
        """With their own shares they are exactly the prior."""
        logs = np.log(bins.tokens)
        middles = np.arange(0.0, logs[-1] + _APART, _APART)
        near = np.exp(-0.5 * np.square((logs[None, :] - middles[:, None]) / _SIGMA))
        mass = prior * near / near.sum(axis=0)
        shares = mass.sum(axis=1)
        there = shares > 1e-9
        mass = mass[there] / shares[there, None]
        return cls(shares[there] / shares[there].sum(), mass, mass[:, ::-1].cumsum(axis=1)[:, ::-1])

    def given(self, ended: Floats, cut: Floats | None, start: Floats | None = None) -> Floats:
        """Shares of the kinds, (K,), that these weights of whole and cut answers speak for. `start`: those found last time; some
        steps further each time is as good as many at once, and it is asked again and again."""
        lasted = np.zeros_like(ended) if cut is None else np.maximum(cut, 0.0)
        shares = self.shares if start is None or len(start) != len(self.shares) else start
        for _ in range(_STEPS):
            whole = self.mass @ (ended / np.maximum(shares @ self.mass, _TINY))
            begun = self.alive @ (lasted / np.maximum(shares @ self.alive, _TINY))
            shares = _WORTH * self.shares + shares * (whole + begun)
            shares = shares / shares.sum()
        return shares

    def mixed(self, shares: Floats) -> Floats:
        """Probability by bin, (bins,), of so much of each kind."""
        mass: Floats = shares @ self.mass
        return mass
