"""Who has most in line, for the moment when somebody has to go. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.policy.fairness.ranking import Ranking
from gateway.policy.fairness.tier import Place


@dataclass(slots=True)
class Hoard:
    """Queued service per tenant, over all bands and classes, and each tenant's newest."""

    weight_of: Callable[[str], float]
    _queued: dict[str, float] = field(default_factory=dict)
    _newest: dict[str, Ranking[int]] = field(default_factory=dict)
    _most: Ranking[str] = field(default_factory=Ranking)

    def adopt(self, weight_of: Callable[[str], float]) -> None:
        self.weight_of = weight_of
        for tenant in self._queued:
            self._change(tenant, 0.0)

    def push(self, arrival: int, place: Place) -> None:
        if place.tenant not in self._newest:
            self._newest[place.tenant] = Ranking()
        self._newest[place.tenant].put(arrival, -place.band, -arrival)
        self._change(place.tenant, place.cost)

    def drop(self, arrival: int, place: Place) -> None:
        newest = self._newest[place.tenant]
        newest.drop(arrival)
        if newest:
            self._change(place.tenant, -place.cost)
        else:
            del self._newest[place.tenant], self._queued[place.tenant]
            self._most.drop(place.tenant)

    def newest(self) -> int | None:
        tenant = self._most.first()
        return None if tenant is None else self._newest[tenant].first()

    def _change(self, tenant: str, service: float) -> None:
        self._queued[tenant] = self._queued.get(tenant, 0.0) + service
        self._most.put(tenant, -self._queued[tenant] / self.weight_of(tenant))
