"""Who comes first when ranks change all the time. Pure."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Rank = tuple[float, ...]

#: Stale records that are let lie before the heap is built anew.
SLACK = 64


@dataclass(slots=True)
class Ranking(Generic[K]):
    """Keys by rank, smallest first, among equals the one ranked first. Each call costs O(log n), amortised.

    A changed rank leaves its old record in the heap. It is dropped when it comes to the top, or with all the others
    when more than half of the heap is stale.
    """

    _heap: list[tuple[Rank, int, K]] = field(default_factory=list)
    _valid: dict[K, int] = field(default_factory=dict)
    _records: int = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, key: K) -> bool:
        return key in self._valid

    def __iter__(self) -> Iterator[K]:
        return iter(self._valid)

    def put(self, key: K, *rank: float) -> None:
        """New, or with another rank than before."""
        self._records += 1
        self._valid[key] = self._records
        heappush(self._heap, (rank, self._records, key))
        self._tidy()

    def drop(self, key: K) -> None:
        if self._valid.pop(key, None) is not None:
            self._tidy()

    def first(self) -> K | None:
        top = self._top()
        return None if top is None else top[2]

    def best(self) -> Rank | None:
        """The rank of the first."""
        top = self._top()
        return None if top is None else top[0]

    def _top(self) -> tuple[Rank, int, K] | None:
        while self._heap:
            record = self._heap[0]
            if self._valid.get(record[2]) == record[1]:
                return record
            heappop(self._heap)
        return None

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._valid) + SLACK:
            self._heap = [record for record in self._heap if self._valid.get(record[2]) == record[1]]
            heapify(self._heap)
