"""When the lengths of a class are no longer those of its estimate (R-10).

Where each realised length falls in the estimate of its moment (its PIT) is uniform while the estimate is right, whatever the
lengths are. Four one-sided CUSUMs (Page, Biometrika 1954) watch its place and its spread, each in standard deviations.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gateway.policy.estimate.features import ClassKey

#: Standard deviations of a uniform and of its distance from the middle.
_PLACE = math.sqrt(1 / 12)
_SPREAD = math.sqrt(1 / 48)


class Change(StrEnum):
    LONGER = "longer"
    SHORTER = "shorter"
    WIDER = "wider"
    NARROWER = "narrower"


_CHANGES = tuple(Change)


@dataclass(frozen=True, slots=True)
class Drift:
    """`observations` is how many the alarm took, counted from where the CUSUM last stood at zero."""

    key: ClassKey
    change: Change
    at_s: float
    observations: int


class Detector:
    """`threshold` trades false alarms (rarer by e^slack·2 for each step) against delay; `slack` is what drifts unseen."""

    def __init__(self, slack: float, threshold: float) -> None:
        self._slack = slack
        self._threshold = threshold
        self.reset()

    def reset(self) -> None:
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._runs = [0, 0, 0, 0]

    def observe(self, pit: float, cut: bool = False) -> tuple[Change, int] | None:
        """The change and the observations it took, when a sum passes the threshold; all sums start again then.

        Of a cut answer only a lower bound is known: it counts with what it is on average above that.
        """
        middle, distance = _above(pit) if cut else (pit, abs(pit - 0.5))
        place, spread = (middle - 0.5) / _PLACE, (distance - 0.25) / _SPREAD
        for index, step in enumerate((place, -place, spread, -spread)):
            value = self._sums[index] + step - self._slack
            if value <= 0.0:
                self._sums[index], self._runs[index] = 0.0, 0
                continue
            self._sums[index] = value
            self._runs[index] += 1
            if value > self._threshold:
                run = self._runs[index]
                self.reset()
                return _CHANGES[index], run
        return None

    def document(self) -> dict[str, Any]:
        return {"sums": list(self._sums), "runs": list(self._runs)}

    def load(self, document: dict[str, Any]) -> None:
        self._sums = [float(value) for value in document["sums"]]
        self._runs = [int(value) for value in document["runs"]]


def _above(bound: float) -> tuple[float, float]:
    """Means of U and of |U − 1/2| for U uniform between `bound` and 1."""
    middle = (1.0 + bound) / 2
    if bound >= 0.5:
        return middle, middle - 0.5
    return middle, ((0.5 - bound) ** 2 + 0.25) / 2 / (1.0 - bound)
