"""Published figures, each with how sure it is that the paper says so (arXiv 2605.19775).

Nothing here was read in the paper itself: its abstract has no seconds and no percentages. `secondary` figures come from
two sets of notes on it, `seed` ones from a review and a podcast. So none may be presented as what the paper reports.
"""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    SECONDARY = "secondary"
    SEED = "seed"


@dataclass(frozen=True, slots=True)
class Published:
    """One figure in the unit of its row. `derived` ones are our quotients of two published figures."""

    value: float
    grade: Grade = Grade.SECONDARY
    derived: bool = False

    @property
    def label(self) -> str:
        return f"[{self.grade}{', quotient' if self.derived else ''}]"


def secondary(value: float) -> Published:
    return Published(value)


def seed(value: float) -> Published:
    return Published(value, Grade.SEED)


def quotient(above: float, below: float) -> Published:
    return Published(above / below, derived=True)
