"""Whose turn it is: bands, classes, tenants by service received, short before long. Pure, takes the place of FifoQueue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gateway.policy.admission import Entry
from gateway.policy.fairness.bills import Bills
from gateway.policy.fairness.claim import Claim
from gateway.policy.fairness.hoard import Hoard
from gateway.policy.fairness.ranking import Ranking
from gateway.policy.fairness.rules import FairRules
from gateway.policy.fairness.tier import Place, Tier

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """One prompt in line. `had_turn`: it came to its turn, was refused, and is back in front."""

    entry: Entry[T]
    claim: Claim
    place: Place
    had_turn: bool


@dataclass(slots=True)
class FairQueue(Generic[T]):
    """The order is that of `FairRules`; `claim_of` reads the facts from an item.

    Besides what FifoQueue can do, the caller says who has had a turn and what came of it: `take` charges the estimate,
    `settle` sets it right at the end. Without them nobody has received anything, and
    shares mean nothing. Somebody taken who is pushed again had been refused: the charge is given back, and the place
    is in front of all who have had no turn.
    """

    limit: int
    claim_of: Callable[[T], Claim]
    rules: FairRules = field(default_factory=FairRules)
    _arrivals: int = 0
    _waiting: dict[int, Waiting[T]] = field(default_factory=dict)
    _front: Ranking[int] = field(default_factory=Ranking)
    _tiers: dict[int, Tier] = field(default_factory=dict)  # by band, the highest first
    _hoard: Hoard = field(init=False)
    _bills: Bills = field(default_factory=Bills)

    def __post_init__(self) -> None:
        self._hoard = Hoard(self.rules.tenant_weight)

    def adopt(self, rules: FairRules) -> None:
        """Other rules from the next turn on. Service received, open bills and deadlines stay; so do band, class and
        expected service of whoever waits: those were what it lined up with."""
        self.rules = rules
        self._hoard.adopt(rules.tenant_weight)
        for tier in self._tiers.values():
            tier.adopt(rules)

    def __len__(self) -> int:
        return len(self._waiting)

    def arrive(self) -> int:
        """The number of a newcomer."""
        self._arrivals += 1
        return self._arrivals

    def push(self, entry: Entry[T]) -> None:
        """Raises ValueError when it waits already."""
        arrival, claim = entry.arrival, self.claim_of(entry.item)
        if arrival in self._waiting:
            raise ValueError(f"entry {arrival} is in line already")
        refused = self._bills.cancel(arrival)
        place = self._place(claim)
        self._waiting[arrival] = Waiting(entry, claim, place, refused is not None)
        if refused is not None:
            self._tier(refused.place).charge(refused.place, -refused.service)
            self._front.put(arrival, arrival)
        else:
            self._tier(place).push(arrival, place)
            self._hoard.push(arrival, place)

    @property
    def head(self) -> Entry[T] | None:
        arrival = self._front.first() if self._front else None
        if arrival is None:
            tier = self._next_tier()
            arrival = None if tier is None else tier.head()
        return None if arrival is None else self._waiting[arrival].entry

    @property
    def last(self) -> Entry[T] | None:
        """Who has to go when there are too many: the newest of the tenant with the most queued service, lowest band
        first. Never one who has had a turn."""
        arrival = self._hoard.newest()
        return None if arrival is None else self._waiting[arrival].entry

    def remove(self, entry: Entry[T]) -> bool:
        """Leaves without a turn. False when it is not waiting."""
        waiting = self._waiting.get(entry.arrival)
        if waiting is None or waiting.entry is not entry:
            return False
        del self._waiting[entry.arrival]
        if waiting.had_turn:
            self._front.drop(entry.arrival)
        else:
            self._tier(waiting.place).drop(entry.arrival, waiting.place)
            self._hoard.drop(entry.arrival, waiting.place)
        return True

    @property
    def over_limit(self) -> bool:
        return len(self._waiting) > self.limit

    def take(self, entry: Entry[T]) -> bool:
        """Its turn: out of the line, charged with the estimate. False when it was not waiting; it is charged all the
        same, because whoever never had to wait is served too."""
        waiting = self._waiting.get(entry.arrival)
        place = self._place(self.claim_of(entry.item)) if waiting is None else waiting.place
        if before := self._bills.cancel(entry.arrival):  # a turn that came to nothing, and no waiting since
            self._tier(before.place).charge(before.place, -before.service)
        tier = self._tier(place)
        if waiting is not None and waiting.had_turn:
            tier.charge(place, place.cost)  # the bands below have earned their share of it the first time
        else:
            tier.serve(place)
            self._earn(place)
        self._bills.open(entry.arrival, place)
        return self.remove(entry)

    def settle(self, entry: Entry[Any], prompt_tokens: int, output_tokens: int) -> None:
        """It has ended, after so many tokens in all. A second call does nothing; of the entry the arrival is enough."""
        self._correct(self._bills.close(entry.arrival, self.rules.cost(prompt_tokens, output_tokens)))

    @property
    def open_bills(self) -> int:
        """Taken and neither settled nor back in line. 0 at idle."""
        return len(self._bills)

    def waiting_by_class(self) -> dict[tuple[str, str], int]:
        """How many wait per band and class, for metrics. O(n)."""
        counts: dict[tuple[str, str], int] = {}
        for waiting in self._waiting.values():
            key = (waiting.claim.band.name.lower(), waiting.place.klass)
            counts[key] = counts.get(key, 0) + 1
        return counts

    def received(self, claim: Claim) -> float:
        """The counter of the claim's tenant in its class and band: service per weight, lifts included."""
        place = self._place(claim)
        return self._tier(place).received(place.klass, place.tenant)

    def _next_tier(self) -> Tier | None:
        """The highest band that waits, unless a lower one has earned its next turn. The lowest has waited longest."""
        waiting = [tier for tier in self._tiers.values() if tier]
        for tier in reversed(waiting[1:]):
            head = tier.head()
            if head is not None and tier.credit >= self._waiting[head].place.cost:
                return tier
        return waiting[0] if waiting else None

    def _earn(self, place: Place) -> None:
        """A turn in one band: those below that wait earn their share of it; its own credit is used up by it."""
        for band, tier in self._tiers.items():
            if band > place.band and tier:
                tier.credit += self.rules.band_share * place.cost
        own = self._tier(place)
        own.credit = max(0.0, own.credit - place.cost)

    def _correct(self, correction: tuple[Place, float] | None) -> None:
        if correction is not None:
            place, service = correction
            self._tier(place).charge(place, service)

    def _place(self, claim: Claim) -> Place:
        rules = self.rules
        return Place(claim.band, rules.class_of(claim), rules.tenant_of(claim), rules.cost_of(claim))

    def _tier(self, place: Place) -> Tier:
        tier = self._tiers.get(place.band)
        if tier is None:
            tier = Tier(self.rules)
            self._tiers = dict(sorted({**self._tiers, place.band: tier}.items()))
        return tier
