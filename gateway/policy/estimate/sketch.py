"""A quantile sketch of lengths that forgets, and that knows which lengths are lower bounds.

Forward decay (Cormode et al., ICDE 2009): an observation at age a (in half-lives) enters with weight 2^a, so old ones fade
without being touched. DDSketch (Masson et al., VLDB 2019) takes such weights; its bins are rescaled before they overflow.
"""

from math import inf
from typing import Any

import numpy as np
from ddsketch.store import DenseStore

from gateway.policy.estimate.bins import Bins
from gateway.policy.estimate.estimate import Floats

#: Half-lives after which the bins are rescaled: 2^40 keeps ten digits of the newest observation.
_RESCALE = 40.0


class Sketch:
    """`ended` and `cut` lengths in DDSketch stores on one grid; `age` runs in half-lives."""

    def __init__(self, bins: Bins, half_life_observations: float, half_life_s: float, now_s: float) -> None:
        self._bins = bins
        self._per_observation = 1.0 / half_life_observations
        self._per_s = 1.0 / half_life_s
        self._ended, self._cut = DenseStore(), DenseStore()
        self._reached: Floats | None = None  # by the answers that go on, when they were told last
        self._lived: Floats | None = None
        self._age = 0.0
        self._at_s = now_s

    def forget_by(self, half_life_observations: float, half_life_s: float, now_s: float) -> None:
        """Other half-lives from now on; what has faded stays faded."""
        self._advance(now_s)
        self._per_observation = 1.0 / half_life_observations
        self._per_s = 1.0 / half_life_s

    def add(self, key: int, cut: bool, now_s: float, speed: float = 1.0) -> None:
        """`key` is a bin; `speed` above 1 forgets that much faster per observation."""
        self._advance(now_s)
        self._age += self._per_observation * speed
        (self._cut if cut else self._ended).add(key, 2.0**self._age)

    def under_way(self, reached: Floats | None, now_s: float) -> None:
        """So many answers that go on have reached each bin, in place of those told before; None: there are none.

        What they have lived through since they were told last counts, and fades like every observation. At a start they
        count in full, for they are what the ended ones are not: long. In a steady state as many come as go, and what is
        left of them has faded: met at any moment, old answers are more frequent than they are.
        """
        if reached is None and self._reached is None:
            return
        self._advance(now_s)
        none = np.zeros(self._bins.count)
        since = (none if reached is None else reached) - (none if self._reached is None else self._reached)
        self._lived = (none if self._lived is None else self._lived) + since * 2.0**self._age
        self._reached = reached

    @property
    def running(self) -> float:
        """Answers that go on, as they were told last."""
        return 0.0 if self._reached is None else float(self._reached.sum())

    def effective(self, now_s: float) -> float:
        """Observations it is worth: their decayed weights, the newest counting 1."""
        self._advance(now_s)
        return float((self._ended.count + self._cut.count) * 2.0**-self._age)

    def shrink_to(self, observations: float, now_s: float, *, anew: bool) -> None:
        """Forgets all but the worth of `observations`, keeping the shape. `anew`: answers under way count in full again."""
        worth = self.effective(now_s)
        if worth > observations:
            self._scale(observations / worth)
        if self._reached is not None and anew:
            self._lived = self._reached * 2.0**self._age

    def weights(self, now_s: float) -> tuple[Floats, Floats | None]:
        """Decayed weights by bin: of whole answers, and of those cut or under way by the bin they had reached (None without
        any). These are differences where answers under way are told: less than nothing in bins that many have left."""
        self._advance(now_s)
        cut = self._dense(self._cut) if self._cut.count > 0 else None
        if self._lived is not None:
            lived = self._lived * 2.0**-self._age
            cut = lived if cut is None else cut + lived
        return self._dense(self._ended), cut

    def document(self, now_s: float) -> dict[str, Any]:
        self._advance(now_s)
        self._rescale()
        return {"ended": _pairs(self._ended), "cut": _pairs(self._cut)}

    def load(self, document: dict[str, Any]) -> None:
        """Adds what `document` holds to an empty sketch. ValueError where that is no sketch."""
        for store, pairs in ((self._ended, document["ended"]), (self._cut, document["cut"])):
            for key, weight in pairs:
                if key < 0 or not 0 < weight < inf:
                    raise ValueError(f"bin {key} of a sketch cannot weigh {weight}")
                store.add(min(int(key), self._bins.count - 1), float(weight))

    def _dense(self, store: DenseStore) -> Floats:
        weights = np.zeros(self._bins.count)
        if store.count > 0:
            first, last = int(store.min_key), int(store.max_key)
            weights[first : last + 1] = store.bins[first - store.offset : last - store.offset + 1]
        weights *= 2.0**-self._age
        return weights

    def _advance(self, now_s: float) -> None:
        if now_s > self._at_s:
            self._age += (now_s - self._at_s) * self._per_s
            self._at_s = now_s
        if self._age > _RESCALE:
            self._rescale()

    def _rescale(self) -> None:
        self._scale(2.0**-self._age)
        self._age = 0.0

    def _scale(self, factor: float) -> None:
        for store in (self._ended, self._cut):
            if store.count > 0:
                store.bins = [weight * factor for weight in store.bins]
                store.count *= factor
        if self._lived is not None:
            self._lived = self._lived * factor


def _pairs(store: DenseStore) -> list[list[float]]:
    return [[index + store.offset, weight] for index, weight in enumerate(store.bins) if weight > 0]
