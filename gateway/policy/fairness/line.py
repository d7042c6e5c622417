"""The prompts of one tenant in one class and band: shortest first, within bounds. Pure."""

from dataclasses import dataclass, field

from gateway.policy.fairness.ranking import Ranking


@dataclass(slots=True)
class Line:
    """Shortest expected service first, unless somebody has been overtaken for long enough.

    Who arrives when the line has been given `served` and others with `ahead` are queued falls due after another
    (stretch - 1) x (ahead + own). Those that are due go first, in the order in which they fell due. So nobody waits
    for more than stretch x (ahead + own) of the line's service and one request more, whatever arrives later: what is
    due before it was part of one queue whose size is bounded by its own due point.
    """

    stretch: float
    served: float = 0.0
    queued: float = 0.0
    _costs: dict[int, float] = field(default_factory=dict)
    _shortest: Ranking[int] = field(default_factory=Ranking)
    _due: Ranking[int] = field(default_factory=Ranking)

    def __len__(self) -> int:
        return len(self._costs)

    def adopt(self, stretch: float) -> None:
        """Another stretch from now on. Whoever waits falls due anew, as if all had just come, in order of arrival:
        due points of two stretches do not compare, and newcomers must not be able to keep the old ones waiting."""
        costs = sorted(self._costs.items())
        self.stretch, self.queued = stretch, 0.0
        self._costs, self._shortest, self._due = {}, Ranking(), Ranking()
        for arrival, cost in costs:
            self.push(arrival, cost)

    def push(self, arrival: int, cost: float) -> None:
        self._costs[arrival] = cost
        if self.stretch == 1:
            self._due.put(arrival, 0.0, arrival)  # everybody is due at once, so it is first come, first served
        else:
            self._due.put(arrival, self.served + (self.stretch - 1) * (self.queued + cost), arrival)
            self._shortest.put(arrival, cost, arrival)
        self.queued += cost

    def drop(self, arrival: int) -> None:
        self.queued -= self._costs.pop(arrival)
        self._due.drop(arrival)
        self._shortest.drop(arrival)

    def serve(self, cost: float) -> None:
        self.served += cost

    def head(self) -> int | None:
        if (due := self._due.top()) is None:
            return None
        rank, arrival = due
        return arrival if rank[0] <= self.served else self._shortest.first()
