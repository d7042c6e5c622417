"""Who waits for KV, and in which order. Pure: the clock is a parameter."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Shortest and longest `Retry-After` that is given when the wait is a guess.
RETRY_AFTER_MIN_S = 1.0
RETRY_AFTER_MAX_S = 60.0


@dataclass(slots=True, order=True)
class Entry(Generic[T]):
    """One prompt that waits. The order is that of arrival, kept when it has to come back."""

    arrival: int
    item: T = field(compare=False)


@dataclass(slots=True)
class FifoQueue(Generic[T]):
    """First come, first served. Nobody overtakes the head, so nobody starves behind smaller requests."""

    limit: int
    _entries: list[Entry[T]] = field(default_factory=list)
    _arrivals: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def arrive(self) -> int:
        """The place in line of a newcomer."""
        self._arrivals += 1
        return self._arrivals

    def push(self, entry: Entry[T]) -> None:
        """Into its place by arrival: a prompt that was refused after its turn does not go to the back."""
        insort(self._entries, entry)

    @property
    def head(self) -> Entry[T] | None:
        return self._entries[0] if self._entries else None

    @property
    def last(self) -> Entry[T] | None:
        return self._entries[-1] if self._entries else None

    def remove(self, entry: Entry[T]) -> bool:
        """False when it is not waiting."""
        for index, waiting in enumerate(self._entries):
            if waiting is entry:
                del self._entries[index]
                return True
        return False

    @property
    def over_limit(self) -> bool:
        return len(self._entries) > self.limit

    def take(self, entry: Entry[T]) -> bool:
        """Its turn. Nobody is charged for one here."""
        return self.remove(entry)

    def settle(self, entry: Entry[Any], prompt_tokens: int, output_tokens: int) -> None:
        """It has ended."""


@dataclass(slots=True)
class DrainRate:
    """How fast places come free, from the latest admissions; the basis of `Retry-After`."""

    window: int = 64
    _times_s: deque[float] = field(default_factory=deque)

    def admitted(self, now_s: float) -> None:
        self._times_s.append(now_s)
        if len(self._times_s) > self.window:
            self._times_s.popleft()

    def per_s(self, now_s: float) -> float:
        """0 while nothing is known. A rate that dries up falls with the time since the last admission."""
        if len(self._times_s) < 2:
            return 0.0
        span_s = now_s - self._times_s[0]
        return (len(self._times_s) - 1) / span_s if span_s > 0 else 0.0

    def retry_after_s(self, waiting: int, now_s: float) -> float:
        """When a newcomer behind `waiting` others could expect a place."""
        rate = self.per_s(now_s)
        wait_s = (waiting + 1) / rate if rate > 0 else RETRY_AFTER_MIN_S
        return min(RETRY_AFTER_MAX_S, max(RETRY_AFTER_MIN_S, wait_s))
