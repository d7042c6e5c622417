"""From which context on a decode step is so long: what gaps are counted by."""

from functools import lru_cache

from engine.simulated.cost import StepCost
from engine.simulated.gaps import place_of

#: Places kept, of all batch sizes seen.
_KEPT = 100_000


class StepPlaces:
    """The places (`place_of`) of decode steps. Of a batch, steps grow with its context, so that each place begins at one
    context; once found, that is kept for all engines of the kind."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._begins: dict[tuple[int, int], int] = {}

    def begins(self, batch: int, place: int, below: int, above: int) -> int:
        """The least context of which the step is in this place or beyond: more than `below`, at most `above`."""
        found = self._begins.get((batch, place))
        if found is None:
            if len(self._begins) >= _KEPT:
                self._begins.clear()
            found = self._begins[batch, place] = self._find(batch, place, below, above)
        return found

    def _find(self, batch: int, place: int, below: int, above: int) -> int:
        while above - below > 1:
            middle = (below + above) // 2
            if place_of(self._cost.step_s(batch, middle)) < place:
                below = middle
            else:
                above = middle
        return above


#: One for each cost: engines of a kind share it.
step_places = lru_cache(maxsize=16)(StepPlaces)
