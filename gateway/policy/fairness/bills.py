"""What each running request has been charged. Pure."""

from dataclasses import dataclass, field

from gateway.policy.fairness.tier import Place


@dataclass(slots=True)
class Bill:
    place: Place
    service: float


@dataclass(slots=True)
class Bills:
    """By arrival: an entry may be made anew for the same prompt, its number stays."""

    _open: dict[int, Bill] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def open(self, arrival: int, place: Place) -> None:
        self._open[arrival] = Bill(place, place.cost)

    def cancel(self, arrival: int) -> Bill | None:
        """What has to be given back; None when there is no bill."""
        return self._open.pop(arrival, None)

    def close(self, arrival: int, service: float) -> tuple[Place, float] | None:
        """The difference to what was charged; negative where something is given back."""
        bill = self._open.pop(arrival, None)
        return None if bill is None else (bill.place, service - bill.service)
