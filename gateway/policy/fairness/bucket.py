"""A token bucket that may go into debt. Pure: the clock is a parameter."""

from dataclasses import dataclass
from math import inf

#: Shorter waits count as none: a request must be let in at the very moment announced, although a clock that counts
#: from 1970 resolves no better than 0.2 µs as a float.
SLACK_S = 1e-5


@dataclass(slots=True)
class Bucket:
    """Fills with `rate_per_s` up to `burst`. An infinite rate is no limit.

    What costs more than `burst` passes when the bucket is full and leaves a debt, so that a large request is served
    rarely rather than never, and the long-run rate holds all the same.
    """

    rate_per_s: float
    burst: float
    _level: float = 0.0
    _seen_s: float = -inf

    def adopt(self, rate_per_s: float, burst: float, now_s: float) -> None:
        """Another rate from now on. Debts stay; what was there stays up to the new burst."""
        limited = self.rate_per_s < inf and self._seen_s > -inf
        level = min(burst, self.level(now_s)) if limited else burst
        self.rate_per_s, self.burst, self._level, self._seen_s = rate_per_s, burst, level, now_s

    def wait_s(self, cost: float, now_s: float) -> float:
        """How long until `cost` passes, if nothing else does. 0 when it passes now."""
        if self.rate_per_s == inf or cost <= 0:
            return 0.0
        if self.rate_per_s == 0:
            return inf
        wait_s = (min(cost, self.burst) - self.level(now_s)) / self.rate_per_s
        return wait_s if wait_s > SLACK_S else 0.0

    def take(self, cost: float, now_s: float) -> None:
        """Also where it does not pass; negative where something is given back."""
        if self.rate_per_s < inf:
            self._level = min(self.burst, self.level(now_s) - cost)
            self._seen_s = max(self._seen_s, now_s)

    def level(self, now_s: float) -> float:
        """A bucket that was never used is full. A clock that steps back takes nothing away."""
        if self._seen_s == -inf:
            return self.burst
        return min(self.burst, self._level + self.rate_per_s * max(0.0, now_s - self._seen_s))

    def full(self, now_s: float) -> bool:
        return self.rate_per_s == inf or self.level(now_s) >= self.burst
