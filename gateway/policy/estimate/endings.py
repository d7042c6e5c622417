"""Whether as many answers end as should, told by those that go on (R-10). Pure.

A PIT needs an answer that is over, and the first to be over are the short ones: after a start they look like a shift to shorter
answers, and after a shift to longer ones like none. What can be counted at any moment is how many should have ended by
now: an answer that went from g to g' tokens was expected to end ln(S(g) / S(g')) times. Two CUSUMs of likelihoods (Lorden, 1971)
watch for lengths that are several times the estimated ones or a part of them, for each age apart: a shift is seen first
where all answers have come after it, and older ones, which still end as before, must not outvote them there.
"""

import numpy as np

from gateway.policy.estimate.bins import Bins
from gateway.policy.estimate.drift import Change
from gateway.policy.estimate.estimate import Floats

#: Ages at which one group ends and the next begins, in tokens.
AGES: Floats = np.array([float(1 << power) for power in range(7, 17)])
_GROUPS = len(AGES) + 1
#: Lengths, in estimated ones, that are watched for; half of such a change is seen too, later.
_WATCHED = ((Change.LONGER, 3.0), (Change.SHORTER, 0.5))
_FACTORS: Floats = np.array([factor for _, factor in _WATCHED])[:, None]
#: Of what lives on beyond this quantile the table knows too little to tell when it should end.
_KNOWN = 1e-3


class Endings:
    """`over` is told of each answer that is over, `go_on` now and then of all that are not."""

    def __init__(self, bins: Bins, threshold: float) -> None:
        self._threshold = threshold
        self._group = np.searchsorted(AGES, bins.tokens, side="right")
        self._last_of = np.searchsorted(self._group, np.arange(_GROUPS), side="right") - 1
        self._under_way: Floats | None = None  # by bin; None: nobody has told yet
        self._over, self._ended = np.zeros(bins.count), np.zeros(bins.count)  # by bin, since they were told last
        self.reset()

    def reset(self) -> None:
        self._sums = np.zeros((len(_WATCHED), _GROUPS))
        self._expected = np.zeros((len(_WATCHED), _GROUPS))  # since its sum last stood at zero

    def over(self, key: int, cut: bool) -> None:
        """Its length was in bin `key`."""
        if self._under_way is not None:
            self._over[key] += 1.0
            self._ended[key] += not cut

    def go_on(
        self, under_way: Floats, mass: Floats, judge: bool = True, share: float = 1.0
    ) -> tuple[Change, int] | None:
        """The change, and how many should have ended until it was seen. `mass` is the estimate by bin, `under_way` the bins that
        those under way have reached; `share` of the threshold is enough."""
        before, self._under_way = self._under_way, under_way
        if before is None:
            return None
        lived, ended = under_way + self._over - before, self._ended
        self._over, self._ended = np.zeros_like(self._over), np.zeros_like(ended)
        if not judge or not lived.any():
            return None
        alive = 1.0 - mass.cumsum() + mass / 2.0
        expected = self._should_have(alive, lived)
        known = np.bincount(self._group, ended * (alive > _KNOWN), _GROUPS)
        self._sums += expected * (1.0 - 1.0 / _FACTORS) - known * np.log(_FACTORS)
        self._expected += expected
        calm = self._sums <= 0.0
        self._sums[calm] = self._expected[calm] = 0.0
        worst = int(self._sums.argmax())
        if self._sums.flat[worst] <= share * self._threshold:
            return None
        found = _WATCHED[worst // _GROUPS][0], max(1, round(float(self._expected.flat[worst])))
        self.reset()
        return found

    def _should_have(self, alive: Floats, lived: Floats) -> Floats:
        """How often answers should have ended at each age, of which so many have come to each bin."""
        ends = -np.log(np.maximum(_KNOWN, alive))  # until then
        after = ends[self._last_of]
        before = np.concatenate(((0.0,), after[:-1]))
        here = np.bincount(self._group, lived, _GROUPS)
        beyond = lived.sum() - here.cumsum()
        expected: Floats = np.bincount(self._group, lived * ends, _GROUPS) - here * before + beyond * (after - before)
        return expected
