"""How wrong lengths are together, learnt from how many answers end (R-13). Pure.

Finished answers alone say little of a shift: the long ones are the last to finish. What can be counted at any moment,
running answers included, is how many should have ended by now: an answer that goes from g to g' tokens was expected to
end -ln(S(g') / S(g)) times. If lengths are c times the estimate, one in c of the expected endings is seen.

It is counted apart by how far answers have come. The old ones hold the memory, and are few: when long answers come
together, the endings of the many short ones would say that all is well.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gateway.policy.estimate.estimate import Floats

#: Generated tokens from which on an answer counts with the next older ones.
AGES: Floats = np.array((1_024.0, 4_096.0, 16_384.0))
GROUPS = len(AGES) + 1


def group_of(generated: Floats) -> NDArray[np.intp]:
    return np.searchsorted(AGES, generated, side="right")


def _none() -> Floats:
    return np.zeros(GROUPS)


@dataclass(slots=True)
class CommonError:
    """All figures are by age. `memory`: expected endings after which an observation has faded to a third; about how many
    a decision rests on.

    `prior`: as many endings have been seen as expected, before anything is. `least_spread`: what is left of the doubt
    when everything agrees. `most`: no length is stretched further.
    """

    least_spread: float = 0.1
    memory: float = 50.0
    prior: float = 10.0
    most: float = 8.0
    expected: Floats = field(default_factory=_none)
    seen: Floats = field(default_factory=_none)

    def observe(self, expected_endings: Floats, endings: Floats) -> None:
        fade = np.exp(-np.maximum(expected_endings, endings) / self.memory)
        self.expected = self.expected * fade + expected_endings
        self.seen = self.seen * fade + endings

    def revised(self, factor: float) -> None:
        """Estimates have become so many times as long: as many times fewer endings were to be expected. Without this, what
        the estimates have learnt would be counted against them once more."""
        self.expected = self.expected / factor

    @property
    def stretch(self) -> Floats:
        """The factor by which lengths exceed their estimates beyond a standard deviation of chance; 1 or more.

        Answers shorter than estimated only cost room, and are for the length model to learn.
        """
        surely = (self.expected + self.prior) / (self.seen + np.sqrt(self.seen + 1.0) + self.prior)
        factor: Floats = np.clip(surely, 1.0, self.most)
        return factor

    @property
    def spread(self) -> Floats:
        """Standard deviation of the factor, as a share of it."""
        likely = np.minimum(self.most, (self.expected + self.prior) / (self.seen + self.prior))
        share: Floats = np.maximum(self.least_spread, likely / self.stretch - 1.0)
        return share
