"""The pace of one engine in virtual time, and the gaps between the tokens of its answers.

All answers of an engine wait for the same steps. So steps are counted by their length, once for all: the gaps of an answer
are what has been counted between its first token and its last. Only a pause (an answer that is preempted, or finds no room
in a step) is its own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from math import ceil

from engine.simulated.cost import StepCost
from engine.simulated.gaps import PLACES, Gaps, difference, longest_in, place_of, together, trimmed
from engine.simulated.sequence import Sequence, Status
from engine.simulated.step import Step

#: Steps grow as on a straight line where the one in the middle is off by no more than this share.
_STRAIGHT = 1e-9
#: So near to a whole step arithmetic may be off by one.
_CLOSE = 1e-5


@dataclass(slots=True)
class _Answer:
    """`since_s`: the time of its last token, where it has been left out of steps since. `counts` begin at the place `low`; what was
    counted before a pause is `parts`."""

    begun_s: float
    step: int
    low: int
    counts: bytes
    parts: list[Gaps] = field(default_factory=list)
    since_s: float | None = None


class Pace:
    """The steps of one engine, and its answers."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._steps = 0
        self._counts = array("I", bytes(4 * PLACES))
        self._low, self._high = PLACES, 0  # where there are any
        # Steps longer than all that came after them, the longest first: how long the longest since any of them was.
        self._at: list[int] = []
        self._long_s: list[float] = []
        self._answers: dict[str, _Answer] = {}
        self._skipped: list[Sequence] = []  # run, and were left out of a step

    # steps

    def step(self, step: Step, seconds: float | None) -> None:
        """`seconds`, where its end was not reckoned from far away."""
        if seconds is None:
            seconds = self._cost.step_s(step.decodes, step.context_tokens, step.chunks)
        self._steps += 1
        self._add(place_of(seconds), 1)
        self._longest(seconds)

    def run(self, batch: int, context_tokens: int, steps: int) -> None:
        """Decode steps in a row, everyone's context growing by a token: none is shorter than the one before."""
        first_s = self._cost.step_s(batch, context_tokens)
        last_s = self._cost.step_s(batch, context_tokens + batch * (steps - 1))
        first, last = place_of(first_s), place_of(last_s)
        if first == last:
            self._add(first, steps)
        else:
            self._count(batch, context_tokens, steps - 1, first_s, last_s)
            self._add(last, 1)
        self._steps += steps
        self._longest(last_s)

    def _add(self, place: int, steps: int) -> None:
        self._counts[place] += steps
        if place < self._low:
            self._low = place
        if place >= self._high:
            self._high = place + 1

    def _count(self, batch: int, context_tokens: int, steps: int, first_s: float, next_s: float) -> None:
        """So many steps of a run; `next_s` is the length of the one after them."""
        first, last = place_of(first_s), place_of(next_s)
        if first == last or steps < 2:
            self._add(first, steps)
            return
        half = steps // 2
        middle_tokens = context_tokens + batch * half
        middle_s = self._cost.step_s(batch, middle_tokens)
        each_s = (next_s - first_s) / steps
        if abs(first_s + half * each_s - middle_s) > _STRAIGHT * middle_s:
            self._count(batch, context_tokens, half, first_s, middle_s)
            self._count(batch, middle_tokens, steps - half, middle_s, next_s)
            return
        done = 0
        for place in range(first, last):
            until = (longest_in(place) - first_s) / each_s
            upto = min(ceil(until), steps)
            if abs(until - round(until)) < _CLOSE:  # too close to tell without asking
                at = min(round(until), steps - 1)
                upto = at + (place_of(self._cost.step_s(batch, context_tokens + batch * at)) <= place)
            self._add(place, upto - done)
            done = upto
        self._add(last, steps - done)

    def _longest(self, seconds: float) -> None:
        longest, at = self._long_s, self._at
        while longest and longest[-1] <= seconds:
            del longest[-1], at[-1]
        longest.append(seconds)
        at.append(self._steps)

    # answers

    def token(self, request_id: str, now_s: float) -> None:
        """An answer's first token, or its first after a pause; any other says nothing new."""
        answer = self._answers.get(request_id)
        if answer is None:
            self._answers[request_id] = _Answer(
                now_s, self._steps, self._low, self._counts[self._low : self._high].tobytes()
            )
        elif answer.since_s is not None:
            answer.parts[-1] = answer.parts[-1].with_pause(now_s - answer.since_s)
            answer.begun_s, answer.since_s = now_s, None
            answer.step, answer.low = self._steps, self._low
            answer.counts = self._counts[self._low : self._high].tobytes()

    def planned(self, step: Step, running: Items[Sequence], now_s: float) -> None:
        """A step begins now. Notes answers that have begun and get no token in it."""
        if not step.preempted and len(running) == step.steady + len(step.scheduled):
            return
        for sequence in step.preempted:
            self._pause(sequence, now_s)
        scheduled = set(step.scheduled)
        for sequence in running:
            if not sequence.steady and sequence not in scheduled and self._pause(sequence, now_s):
                self._skipped.append(sequence)

    def completed(self, now_s: float) -> None:
        """The step is over. Of those skipped before, some go on with all others, and are not sampled by themselves."""
        if not self._skipped:
            return
        for sequence in self._skipped:
            if sequence.steady and sequence.request_id in self._answers:
                self.token(sequence.request_id, now_s)
        self._skipped = [s for s in self._skipped if s.status is Status.RUNNING and not s.steady]

    def end(self, request_id: str, now_s: float) -> Gaps:
        """After its last token."""
        answer = self._answers.pop(request_id, None)
        if answer is None:
            return Gaps()
        last = self._since(answer, now_s)
        return together([*answer.parts, last]) if answer.parts else last

    def forget(self, request_id: str) -> None:
        self._answers.pop(request_id, None)

    def _pause(self, sequence: Sequence, now_s: float) -> bool:
        """Whether it has a token at all."""
        answer = self._answers.get(sequence.request_id)
        if answer is not None and answer.since_s is None:
            answer.parts.append(self._since(answer, now_s))
            answer.since_s = now_s
        return answer is not None

    def _since(self, answer: _Answer, now_s: float) -> Gaps:
        if self._steps == answer.step:
            return Gaps()
        counts = self._counts[self._low : self._high].tobytes()
        if answer.counts:
            counts = difference(counts, answer.counts, answer.low - self._low)
        longest_s = self._long_s[bisect_right(self._at, answer.step)]
        count, total_s = self._steps - answer.step, now_s - answer.begun_s
        return Gaps(*trimmed(self._low, counts), count, (), longest_s, total_s)
