"""Service received, per member, and who has had least of it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.policy.fairness.ranking import SLACK, Ranking


@dataclass(slots=True)
class Shares:
    """Virtual token counters (VTC, arXiv 2401.00588), one per member: tenants of a class, or classes of a band.

    Members wait or rest. Next is the waiting one with the least service per weight. Whoever begins to wait is lifted
    to the least of those who wait already (to the last who waited, when nobody does), so that idleness earns nothing;
    and starts level with them, so that a newcomer does not have to catch up either.
    """

    weight_of: Callable[[str], float]
    _counters: dict[str, float] = field(default_factory=dict)
    _waiting: Ranking[str] = field(default_factory=Ranking)
    _since: dict[str, int] = field(default_factory=dict)
    _last: str | None = None
    _forget_above: int = SLACK

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def counter(self, member: str) -> float:
        """Service received per weight, lifts included."""
        known = self._counters.get(member)
        return self._floor() if known is None else known

    def first(self) -> str | None:
        return self._waiting.first()

    def wait(self, member: str, arrival: int) -> None:
        """`arrival` decides between equals."""
        if member in self._waiting:
            return
        self._counters[member] = max(self._counters.get(member, 0.0), self._floor())
        self._since[member] = arrival
        self._waiting.put(member, self._counters[member], arrival)

    def rest(self, member: str) -> None:
        if member not in self._waiting:
            return
        self._waiting.drop(member)
        del self._since[member]
        self._last = member
        self._forget()

    def pass_by(self, member: str) -> None:
        """Waited for no time at all."""
        if member not in self._waiting:
            self._counters[member] = max(self._counters.get(member, 0.0), self._floor())
            self._last = member
            self._forget()

    def charge(self, member: str, service: float) -> None:
        """`service` is negative where something is given back."""
        self._counters[member] = self.counter(member) + service / self.weight_of(member)
        if member in self._waiting:
            self._waiting.put(member, self._counters[member], self._since[member])

    def _floor(self) -> float:
        """What a member that begins to wait has at least."""
        least = self._waiting.best()
        if least is not None:
            return least[0]
        return 0.0 if self._last is None else self._counters[self._last]

    def _forget(self) -> None:
        """Resting members that would be lifted anyway need no counter; so memory follows who is active."""
        if len(self._counters) <= self._forget_above:
            return
        floor = self._floor()
        keep = {
            member: counter
            for member, counter in self._counters.items()
            if counter > floor or member in self._waiting or member == self._last
        }
        self._counters = keep
        self._forget_above = 2 * len(keep) + SLACK  # looking at all of them pays only after as many have come
