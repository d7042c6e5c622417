"""The pace of one engine in virtual time, and the gaps between the tokens of its answers.

All answers of an engine wait for the same steps. So steps are counted by their length, once for all: the gaps of an answer
are what has been counted between its first token and its last. Only a pause (an answer that is preempted, or finds no room
in a step) is its own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np

from engine.simulated.cost import StepCost
from engine.simulated.gaps import PLACES, Gaps, place_of, together
from engine.simulated.sequence import Sequence, Status
from engine.simulated.step import Step


@dataclass(slots=True)
class _Answer:
    """`since_s`: the time of its last token, where it has been left out of steps since. What was counted before is `parts`."""

    begun_s: float
    step: int
    counts: "array[int]"
    parts: list[Gaps] = field(default_factory=list)
    since_s: float | None = None


class Pace:
    """The steps of one engine, and its answers."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._steps = 0
        self._counts = array("I", bytes(4 * PLACES))
        # Steps longer than all that came after them, the longest first: how long the longest since any of them was.
        self._at: list[int] = []
        self._long_s: list[float] = []
        self._answers: dict[str, _Answer] = {}
        self._skipped: list[Sequence] = []  # run, and were left out of a step

    # steps

    def step(self, step: Step, slower: float) -> None:
        """`slower`: by what its time was multiplied."""
        seconds = self._cost.step_s(step.decodes, step.context_tokens, step.chunks) * slower
        self._steps += 1
        self._counts[place_of(seconds)] += 1
        self._longest(seconds)

    def run(self, batch: int, context_tokens: int, steps: int) -> None:
        """Decode steps in a row, everyone's context growing by a token: none is shorter than the one before."""
        first = self._cost.step_s(batch, context_tokens)
        last = self._cost.step_s(batch, context_tokens + batch * (steps - 1))
        self._count(batch, context_tokens, 0, steps - 1, place_of(first), place_of(last))
        self._steps += steps
        self._longest(last)

    def _count(self, batch: int, context: int, low: int, high: int, first: int, last: int) -> None:
        """Steps `low` to `high` of a run, whose ends have those places."""
        if first == last:
            self._counts[first] += high - low + 1
        elif high - low == 1:
            self._counts[first] += 1
            self._counts[last] += 1
        else:
            middle = (low + high) // 2
            place = place_of(self._cost.step_s(batch, context + batch * middle))
            self._count(batch, context, low, middle, first, place)
            self._counts[place] -= 1  # the middle is in both halves
            self._count(batch, context, middle, high, place, last)

    def _longest(self, seconds: float) -> None:
        longest = self._long_s
        while longest and longest[-1] <= seconds:
            longest.pop()
            self._at.pop()
        longest.append(seconds)
        self._at.append(self._steps)

    # answers

    def token(self, request_id: str, now_s: float) -> None:
        """An answer's first token, or its first after a pause; any other says nothing new."""
        answer = self._answers.get(request_id)
        if answer is None:
            self._answers[request_id] = _Answer(now_s, self._steps, self._counts[:])
        elif answer.since_s is not None:
            answer.parts[-1] = answer.parts[-1].with_pause(now_s - answer.since_s)
            answer.begun_s, answer.since_s = now_s, None
            answer.step, answer.counts = self._steps, self._counts[:]

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
        counts = np.frombuffer(self._counts, np.uint32) - np.frombuffer(answer.counts, np.uint32)
        places = counts.nonzero()[0]
        longest_s = self._long_s[bisect_right(self._at, answer.step)]
        return Gaps(
            array("H", places.astype(np.uint16).tobytes()),
            array("I", counts[places].tobytes()),
            longest_s=longest_s,
            total_s=now_s - answer.begun_s,
        )
