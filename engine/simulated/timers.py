"""Actions at their times, in virtual time."""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from math import inf

Action = Callable[[], None]


class Timers:
    """Where times are equal, whoever was asked for first is first.

    Most timers are deadlines that are met, and of those with the same delay each is due after the one before it. So every
    delay has a line, of which only the first is in the heap: a thousand requests that wait for as many deadlines are one.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._lines: dict[float, _Line] = {}

    @property
    def next_s(self) -> float:
        """When the next one is due; infinity where there is none."""
        return self._heap[0][0] if self._heap else inf

    def at(self, time_s: float, action: Action) -> None:
        heapq.heappush(self._heap, (time_s, next(self._numbers), action))

    def deadline(self, now_s: float, delay_s: float, action: Action, met: Callable[[], bool]) -> None:
        """As `at`; the action has nothing to do once it is `met`, and may then be left out."""
        line = self._lines.get(delay_s)
        if line is None:
            line = self._lines[delay_s] = _Line(self._heap)
        line.add(now_s + delay_s, next(self._numbers), action, met)

    def fire(self) -> None:
        """Runs the next one."""
        heapq.heappop(self._heap)[2]()


class _Line:
    def __init__(self, heap: list[tuple[float, int, Action]]) -> None:
        self._heap = heap
        self._waiting: deque[tuple[float, int, Action, Callable[[], bool]]] = deque()

    def add(self, time_s: float, number: int, action: Action, met: Callable[[], bool]) -> None:
        if not self._waiting:
            heapq.heappush(self._heap, (time_s, number, self._fire))
        self._waiting.append((time_s, number, action, met))

    def _fire(self) -> None:
        waiting = self._waiting
        action = waiting.popleft()[2]
        while waiting and waiting[0][3]():
            waiting.popleft()
        if waiting:
            heapq.heappush(self._heap, (*waiting[0][:2], self._fire))
        action()
