"""How careful a worker has become by what happened to it: its error budget, spent and earned again. Pure.

The chance of an overrun is a forecast, and a forecast can be wrong in ways that it does not know of. Whether the limit was
passed is a fact. More time above it than was declared means more room from now on, as in adaptive conformal inference
(Gibbs and Candes, 2021), which needs no model of what went wrong. So in the long run what is declared is what comes.

What may be accepted depends on what an overrun costs: where answers go on at another worker it is a pause, where they cannot it is
their KV. A worker for which nothing is declared finds out which. One that was without any room for a while, and that no answer
left for another, takes it that its answers cannot move: there is nobody, its engine does not hand over, or nobody's window suffices.

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
    Where it is None, `shipped` is, or `alone` by a worker that had no room for `alone_after` steps since an answer last left it
    for another worker. A step without room is forgotten after `forgotten_after` with some: a bad moment now and then is no
    proof. What has been found out is true until an answer leaves.

    `steps` above the limit cost a standard deviation of room, or `life_share` of an answer's life where that is more; it
    takes 1 / `accepted` times as many below to earn it back. Time with no room at all counts `full_weight` times: then answers
    lose their KV, unless they can go on elsewhere in time.
    `most`: standard deviations beyond the accepted ones. `extra`: of them, now.
    """

    declared: float | None = None
    steps: float = 300.0
    life_share: float = 1.0
    full_weight: float = 10.0
    most: float = 2.0
    extra: float = 0.0
    shipped: float = 0.12
    alone: float = 0.04
    alone_after: float = 100.0
    forgotten_after: float = 1_000.0
    short_steps: float = 0.0

    @property
    def accepted(self) -> float:
        if self.declared is not None:
            return self.declared
        return self.alone if self._found_out else self.shipped

    @property
    def _found_out(self) -> bool:
        return self.short_steps >= self.alone_after

    def answer_left(self) -> None:
        """For another worker, where it goes on."""
        self.short_steps = 0.0

    def passed(self, steps: int, *, over: bool, full: bool = False, life_steps: float = 0.0) -> None:
        """So many decode steps have passed, all of them taken to have been as it is now. `life_steps`: of one answer."""
        steps = min(steps, _LOOK_STEPS)
        if full:
            self.short_steps += steps
        elif not self._found_out:
            self.short_steps = max(0.0, self.short_steps - steps / self.forgotten_after)
        price = max(self.steps, self.life_share * life_steps)
        spent = float(over) + self.full_weight * float(full)
        self.extra = min(self.most, max(0.0, self.extra + steps * (spent - self.accepted) / price))

    @property
    def epsilon(self) -> float:
        return 1.0 - _NORMAL.cdf(_NORMAL.inv_cdf(1.0 - self.accepted) + self.extra)
