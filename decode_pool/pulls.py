"""How many KV pulls run into one decode group at once; the rest wait their turn in order."""

from collections import deque
from collections.abc import Callable


class Pull:
    """One sequence's place: waiting, then under way, then over."""

    __slots__ = ("_gate", "launch", "over", "under_way")

    def __init__(self, gate: "PullGate", launch: Callable[[], None]) -> None:
        self._gate = gate
        self.launch = launch
        self.under_way = False
        self.over = False

    def end(self) -> None:
        """The pull is done, or no longer wanted. Ending it twice is harmless."""
        if not self.over:
            self.over = True
            self._gate._left(self)


class PullGate:
    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"at least one pull must be allowed, not {limit}")
        self._limit = limit
        self._waiting: deque[Pull] = deque()
        self._advancing = False
        self.under_way = 0

    @property
    def waiting(self) -> int:
        return sum(1 for pull in self._waiting if not pull.over)

    def enter(self, pull: Pull) -> None:
        """Launches the pull as soon as there is room: now, or when an earlier one ends."""
        self._waiting.append(pull)
        self._advance()

    def _left(self, pull: Pull) -> None:
        if pull.under_way:
            self.under_way -= 1
        self._advance()

    def _advance(self) -> None:
        """Never inside itself: a launch that ends at once comes back here, and a whole line of them may."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._waiting and self.under_way < self._limit:
                self._launch(self._waiting.popleft())
        finally:
            self._advancing = False

    def _launch(self, pull: Pull) -> None:
        if not pull.over:
            pull.under_way = True
            self.under_way += 1
            pull.launch()
