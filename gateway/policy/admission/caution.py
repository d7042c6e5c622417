"""How careful a worker has become by what happened to it: its error budget, spent and earned again. Pure.

The chance of an overrun is a forecast, and a forecast can be wrong in ways that it does not know of. Whether the limit was
passed is a fact. More time above it than was declared means more room from now on, as in adaptive conformal inference
(Gibbs and Candes, 2021), which needs no model of what went wrong. So in the long run what is declared is what comes.

Time is measured by the answers' lives: what has come together stays until it ends, so one overrun of long answers, which
epsilon allows for, lasts as much longer, and is no more of a proof.
"""

from dataclasses import dataclass
from statistics import NormalDist

_NORMAL = NormalDist()
#: One look stands for so many steps at most: what was between two looks far apart is not known.
_LOOK_STEPS = 100


@dataclass(slots=True)
class Caution:
    """`declared`: the chance that is accepted while all goes well, and the share of the time above the limit that is accepted.

    `steps` above the limit cost a standard deviation of room, or `life_share` of an answer's life where that is more; it
    takes 1 / `declared` times as many below to earn it back. Time with no room at all counts `full_weight` times: then answers
    lose their KV, unless they can go on elsewhere in time.
    `most`: standard deviations beyond the declared ones. `extra`: of them, now.
    """

    declared: float
    steps: float = 300.0
    life_share: float = 1.0
    full_weight: float = 10.0
    most: float = 2.0
    extra: float = 0.0

    def passed(self, steps: int, *, over: bool, full: bool = False, life_steps: float = 0.0) -> None:
        """So many decode steps have passed, all of them taken to have been as it is now. `life_steps`: of one answer."""
        price = max(self.steps, self.life_share * life_steps)
        spent = float(over) + self.full_weight * float(full)
        self.extra = min(self.most, max(0.0, self.extra + min(steps, _LOOK_STEPS) * (spent - self.declared) / price))

    @property
    def epsilon(self) -> float:
        return 1.0 - _NORMAL.cdf(_NORMAL.inv_cdf(1.0 - self.declared) + self.extra)
