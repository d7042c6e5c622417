"""Whether early refusals were right, by what was seen afterwards and not by the forecast that refused. Pure.

Each is judged as if it alone had been let in:

* for a promised TTFT, by the admissions that followed. Its turn would have come after those who waited when it came,
  so at the admission after theirs. The refusal was wrong when that came early enough to keep the promise.
* for the decode load, at the moment for which the load had been predicted. It was wrong when what was then seen, and the
  prompt's own share, were within the limit.

Not judged: what a prompt's own computing would have broken (nothing that follows tells), a load that nobody looked at in
time, and what comes while too many are open.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from math import inf

from gateway.policy.rejection import RejectReason

#: Refusals that are open at a time, of each kind.
MOST = 1024
#: A load that is seen later than this after its moment says nothing of it.
LATE_S = 1.0


class Verdict(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    UNJUDGED = "unjudged"


@dataclass(slots=True)
class Hindsight:
    """Told of refusals, of every admission, and now and then of the load. All moments on one clock, in s."""

    most: int = MOST
    judged: Counter[tuple[RejectReason, Verdict]] = field(default_factory=Counter)
    _admitted: int = 0
    _turns: list[tuple[int, float]] = field(default_factory=list)
    _loads: list[tuple[float, float]] = field(default_factory=list)
    _soonest_s: float = inf

    def late(self, waiting: int, latest_turn_s: float, now_s: float) -> None:
        """Refused for a promise that a turn after `latest_turn_s` would have broken, with `waiting` before it."""
        if latest_turn_s < now_s or len(self._turns) >= self.most:
            self._judge(RejectReason.TTFT, Verdict.UNJUDGED)
        else:
            heappush(self._turns, (self._admitted + waiting + 1, latest_turn_s))
            self._soonest_s = min(self._soonest_s, latest_turn_s)

    def full(self, at_s: float, room: float) -> None:
        """Refused because the load at the moment `at_s` was to be above `room`: the limit less the prompt's own share."""
        if len(self._loads) >= self.most:
            self._judge(RejectReason.DECODE, Verdict.UNJUDGED)
        else:
            heappush(self._loads, (at_s, room))

    def admitted(self, now_s: float) -> None:
        self._admitted += 1
        while self._turns and self._turns[0][0] <= self._admitted:
            _, latest_s = heappop(self._turns)
            self._judge(RejectReason.TTFT, Verdict.WRONG if now_s <= latest_s else Verdict.RIGHT)

    @property
    def due_s(self) -> float:
        """When to look next, or earlier; infinite while there is nothing to judge. Cheap: every refusal asks."""
        return min(self._soonest_s, self._loads[0][0] if self._loads else inf)

    def look(self, now_s: float, load: float) -> None:
        """`load`: share of the decode workers' room that is promised or waited for now."""
        while self._loads and self._loads[0][0] <= now_s:
            at_s, room = heappop(self._loads)
            seen = Verdict.WRONG if load <= room else Verdict.RIGHT
            self._judge(RejectReason.DECODE, seen if now_s - at_s <= LATE_S else Verdict.UNJUDGED)
        open_turns = [turn for turn in self._turns if turn[1] >= now_s]
        for _ in range(len(self._turns) - len(open_turns)):  # too late now, whenever their turn would come
            self._judge(RejectReason.TTFT, Verdict.RIGHT)
        if len(open_turns) < len(self._turns):
            self._turns = sorted(open_turns)
        self._soonest_s = min((latest_s for _, latest_s in open_turns), default=inf)

    @property
    def reasons(self) -> list[RejectReason]:
        """For which something was refused so far."""
        return [reason for reason in RejectReason if self.open(reason) or any(self.judged[reason, v] for v in Verdict)]

    def open(self, reason: RejectReason) -> int:
        """Refusals that are still to be judged."""
        return len(self._turns if reason is RejectReason.TTFT else self._loads)

    def _judge(self, reason: RejectReason, verdict: Verdict) -> None:
        self.judged[reason, verdict] += 1
