"""One priority band: its classes, their tenants, and the tenants' lines. Pure."""

from dataclasses import dataclass, field

from gateway.policy.fairness.line import Line
from gateway.policy.fairness.rules import FairRules
from gateway.policy.fairness.shares import Shares


@dataclass(frozen=True, slots=True)
class Place:
    """Where a prompt stands, and the service that it asks for."""

    band: int
    klass: str
    tenant: str
    cost: float


@dataclass(slots=True)
class Tier:
    """Of the classes the one that has had least for its weight, of its tenants the same, of that tenant's line the
    head. `credit` is the service that the bands above owe this one while it waits."""

    rules: FairRules
    credit: float = 0.0
    _classes: Shares = field(init=False)
    _tenants: dict[str, Shares] = field(default_factory=dict)
    _lines: dict[tuple[str, str], Line] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._classes = Shares(self.rules.class_weight)

    def __len__(self) -> int:
        """How many lines have somebody in them."""
        return len(self._lines)

    def adopt(self, rules: FairRules) -> None:
        """Other rules from now on; what each has received, and where each stands, stays."""
        self.rules = rules
        self._classes.weight_of = rules.class_weight
        for members in self._tenants.values():
            members.weight_of = rules.tenant_weight
        for line in self._lines.values():
            if line.stretch != rules.stretch:
                line.adopt(rules.stretch)

    def push(self, arrival: int, place: Place) -> None:
        key = (place.klass, place.tenant)
        if key not in self._lines:
            self._lines[key] = Line(self.rules.stretch)
        self._lines[key].push(arrival, place.cost)
        self._members(place.klass).wait(place.tenant, arrival)
        self._classes.wait(place.klass, arrival)

    def drop(self, arrival: int, place: Place) -> None:
        key, members = (place.klass, place.tenant), self._members(place.klass)
        line = self._lines[key]
        line.drop(arrival)
        if line:
            return
        del self._lines[key]
        members.rest(place.tenant)
        if not members:
            self._classes.rest(place.klass)
        if not self._lines:
            self.credit = 0.0

    def head(self) -> int | None:
        klass = self._classes.first()
        if klass is None:
            return None
        tenant = self._tenants[klass].first()
        return None if tenant is None else self._lines[klass, tenant].head()

    def serve(self, place: Place) -> None:
        """A turn is given: to one who waits here, or to one who did not have to."""
        if line := self._lines.get((place.klass, place.tenant)):
            line.serve(place.cost)
        self._members(place.klass).pass_by(place.tenant)
        self._classes.pass_by(place.klass)
        self.charge(place, place.cost)

    def charge(self, place: Place, service: float) -> None:
        self._members(place.klass).charge(place.tenant, service)
        self._classes.charge(place.klass, service)

    def received(self, klass: str, tenant: str) -> float:
        """Service of a tenant per weight, lifts included."""
        return self._members(klass).counter(tenant)

    def _members(self, klass: str) -> Shares:
        if klass not in self._tenants:
            self._tenants[klass] = Shares(self.rules.tenant_weight)
        return self._tenants[klass]
