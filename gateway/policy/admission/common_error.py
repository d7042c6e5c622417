"""How wrong lengths are together, learnt from how many answers end (R-13). Pure.

Finished answers alone say little of a shift: the long ones are the last to finish. What can be counted at any moment,
running answers included, is how many should have ended by now: an answer that goes from g to g' tokens was expected to
end -ln(S(g') / S(g)) times. If lengths are c times the estimate, one in c of the expected endings is seen.

Two things are thought possible: the estimates are right but for a few per cent, or they are wrong by nobody knows what.
Which of the two it is, the endings themselves tell (a Poisson count under two Gamma priors). So chance moves the factor a
little, and a shift as far as it goes.

It is counted apart by how far answers have come. The old ones hold the memory, and are few: when long answers come
together, the endings of the many short ones would say that all is well.
"""

from dataclasses import dataclass, field
from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from gateway.policy.estimate.estimate import Floats

#: Generated tokens from which on an answer counts with the next older ones.
AGES: Floats = np.array((1_024.0, 4_096.0, 16_384.0))
GROUPS = len(AGES) + 1
_TINY = 1e-9


def group_of(generated: Floats | float) -> NDArray[np.intp]:
    return np.searchsorted(AGES, generated, side="right")


def _none() -> Floats:
    return np.zeros(GROUPS)


@dataclass(slots=True)
class CommonError:
    """All figures are by age. `memory`: expected endings after which an observation has faded to a third; about how many
    a decision rests on.

    `doubt`: standard deviation of all lengths together, as a share, where estimates are right; what ends as expected
    narrows it. `shifted`: the chance, before anything is seen, that they are wrong; that belief is worth `shifted_worth`
    endings. `most`: no length is stretched further.
    """

    doubt: float = 0.1
    memory: float = 50.0
    shifted: float = 0.02
    shifted_worth: float = 5.0
    most: float = 8.0
    expected: Floats = field(default_factory=_none)
    seen: Floats = field(default_factory=_none)
    _believed: tuple[Floats, Floats] | None = None

    def observe(self, expected_endings: Floats, endings: Floats) -> None:
        fade = np.exp(-np.maximum(expected_endings, endings) / self.memory)
        self.expected = self.expected * fade + expected_endings
        self.seen = self.seen * fade + endings
        self._believed = None

    def revised(self, factor: float) -> None:
        """Estimates have become so many times as long: as many times fewer endings were to be expected. Without this, what
        the estimates have learnt would be counted against them once more."""
        self.expected = self.expected / factor
        self._believed = None

    @property
    def stretch(self) -> Floats:
        """The factor by which lengths are expected to exceed their estimates; 1 or more.

        Answers shorter than estimated only cost room, and are for the length model to learn.
        """
        return self._belief()[0]

    @property
    def spread(self) -> Floats:
        """Standard deviation of the factor, as a share of it."""
        return self._belief()[1]

    def _belief(self) -> tuple[Floats, Floats]:
        if self._believed is None:
            calm, wild = 1.0 / max(self.doubt, 1e-3) ** 2, self.shifted_worth
            odds = np.exp(np.clip(self._evidence(wild) - self._evidence(calm), -50.0, 50.0))
            odds *= self.shifted / (1.0 - self.shifted)
            chance = odds / (1.0 + odds)
            mean, square = _none(), _none()
            for worth, share in ((calm, 1.0 - chance), (wild, chance)):
                factor = (worth + self.expected) / (worth + self.seen)
                mean += share * factor
                square += share * np.square(factor) * (1.0 + 1.0 / (worth + self.seen))
            spread = np.sqrt(np.maximum(0.0, square - np.square(mean))) / mean
            self._believed = np.clip(mean, 1.0, self.most), np.minimum(spread, self.most)
        return self._believed

    def _evidence(self, worth: float) -> Floats:
        """Logarithm of the chance to see so many endings, but for what does not depend on the belief."""
        ways = np.array([lgamma(worth + seen) for seen in self.seen.tolist()]) - lgamma(worth)
        per = np.log(worth + self.expected)
        found: Floats = ways + worth * (log(worth) - per) + self.seen * (np.log(self.expected + _TINY) - per)
        return found
