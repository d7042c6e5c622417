"""Who comes first when ranks change all the time. Pure."""

from collections import deque
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

    Whatever comes in order is in `_run`, where nothing has to be sorted: all of it, first come, first served. The rest is in
    `_heap`. A changed rank leaves its old record where it is. That is dropped when it comes to the top, or with all the
    others when more than half of the records are stale.
    """

    _run: deque[tuple[Rank, int, K]] = field(default_factory=deque)
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
        record = (rank, self._records, key)
        if not self._run or self._run[-1] <= record:
            self._run.append(record)
        else:
            heappush(self._heap, record)
        self._tidy()

    def drop(self, key: K) -> None:
        if self._valid.pop(key, None) is not None:
            self._tidy()

    def first(self) -> K | None:
        top = self.top()
        return None if top is None else top[1]

    def best(self) -> Rank | None:
        """The rank of the first."""
        top = self.top()
        return None if top is None else top[0]

    def top(self) -> tuple[Rank, K] | None:
        """The first with its rank."""
        run, heap, valid = self._run, self._heap, self._valid
        while run and valid.get(run[0][2]) != run[0][1]:
            run.popleft()
        while heap and valid.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        if not run and not heap:
            return None
        rank, _, key = run[0] if run and (not heap or run[0] < heap[0]) else heap[0]
        return rank, key

    def _tidy(self) -> None:
        if len(self._run) + len(self._heap) > 2 * len(self._valid) + SLACK:
            self._run = deque([record for record in self._run if self._valid.get(record[2]) == record[1]])
            self._heap = [record for record in self._heap if self._valid.get(record[2]) == record[1]]
            heapify(self._heap)
