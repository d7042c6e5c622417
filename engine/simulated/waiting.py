"""Queues of waiting sequences: in order of arrival, or by priority."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Protocol

from engine.simulated.sequence import Sequence


class Policy(StrEnum):
    FCFS = "fcfs"
    PRIORITY = "priority"


class WaitingQueue(Protocol):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Sequence]: ...
    def add(self, sequence: Sequence) -> None: ...
    def first(self) -> Sequence: ...
    def pop(self) -> Sequence: ...
    def put_back(self, sequences: Iterable[Sequence]) -> None:
        """Returns sequences to the front, each before the one returned earlier, where the policy has a front."""
        ...

    def remove(self, sequence: Sequence) -> None: ...


class ArrivalQueue:
    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        self._queue.append(sequence)

    def first(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        return self._queue.popleft()

    def put_back(self, sequences: Iterable[Sequence]) -> None:
        self._queue.extendleft(sequences)

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


class PriorityQueue:
    """Smaller priorities first, then earlier arrivals."""

    def __init__(self) -> None:
        self._heap: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(sorted(self._heap))

    def add(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, sequence)

    def first(self) -> Sequence:
        return self._heap[0]

    def pop(self) -> Sequence:
        return heapq.heappop(self._heap)

    def put_back(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._heap.remove(sequence)
        heapq.heapify(self._heap)


def waiting_queue(policy: Policy) -> WaitingQueue:
    return PriorityQueue() if policy is Policy.PRIORITY else ArrivalQueue()
