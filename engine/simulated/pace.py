"""The pace of one engine in virtual time, and the gaps between the tokens of its answers.

All answers of an engine wait for the same steps. So steps are counted by their length, once for all: the gaps of an answer
are what has been counted between its first token and its last. Only a pause (an answer that is preempted, or finds no room
in a step) is its own.
"""

from bisect import bisect_right
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from engine.simulated.cost import StepCost
from engine.simulated.gaps import PLACE_BITS, Gaps, laid_out, place_of, together
from engine.simulated.sequence import Sequence, Status
from engine.simulated.step import Step
from engine.simulated.step_places import step_places

_NO_RUN = 0, 0, 0


@dataclass(slots=True)
class _Answer:
    """`since_s`: the time of its last token, where it has been left out of steps since. `counts` and `step`: of the engine at that
    time; what was counted before a pause is `parts`."""

    begun_s: float
    step: int
    counts: int
    parts: list[Gaps] = field(default_factory=list)
    since_s: float | None = None


class Pace:
    """The steps of one engine, and its answers."""

    def __init__(self, cost: StepCost, *, merging: bool = True) -> None:
        """`merging`: runs that follow each other as one are counted as one, when somebody asks."""
        self._cost = cost
        self._places = step_places(cost)
        self._merging = merging
        self._run = _NO_RUN  # not counted yet
        self._steps = 0
        self._counts = 0  # of each place, as one number: a look back is a reference, what came since a subtraction
        # Steps longer than all that came after them, the longest first: how long the longest since any of them was.
        self._at: list[int] = []
        self._long_s: list[float] = []
        self._answers: dict[str, _Answer] = {}
        self._skipped: list[Sequence] = []  # run, and were left out of a step

    @property
    def waiting(self) -> bool:
        """Whether somebody was left out of a step, and may go on in the next."""
        return bool(self._skipped)

    # steps

    def step(self, seconds: float) -> None:
        """A step that is like no other."""
        self._count_run()
        self._steps += 1
        self._add(place_of(seconds), 1)
        self._longest(seconds)

    def run(self, batch: int, context_tokens: int, steps: int) -> None:
        """Decode steps in a row, everyone's context growing by a token: none is shorter than the one before."""
        before_batch, before_tokens, before = self._run
        if self._merging and before and batch == before_batch and context_tokens == before_tokens + batch * before:
            self._run = batch, before_tokens, before + steps
            return
        self._count_run()
        self._run = batch, context_tokens, steps

    def _count_run(self) -> None:
        batch, context_tokens, steps = self._run
        if not steps:
            return
        self._run = _NO_RUN
        last_s = first_s = self._cost.step_s(batch, context_tokens)
        first = last = place_of(first_s)
        if steps > 1:
            last_s = self._cost.step_s(batch, context_tokens + batch * (steps - 1))
            last = place_of(last_s)
        done, above = 0, context_tokens + batch * (steps - 1)
        for place in range(first, last):
            begins = self._places.begins(batch, place + 1, context_tokens, above)
            upto = (begins - context_tokens + batch - 1) // batch
            if upto > done:
                self._add(place, upto - done)
                done = upto
        self._add(last, steps - done)
        self._steps += steps
        self._longest(last_s)

    def _add(self, place: int, steps: int) -> None:
        self._counts += steps << place * PLACE_BITS

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
            self._count_run()
            self._answers[request_id] = _Answer(now_s, self._steps, self._counts)
        elif answer.since_s is not None:
            answer.parts[-1] = answer.parts[-1].with_pause(now_s - answer.since_s)
            answer.begun_s, answer.since_s = now_s, None
            self._count_run()
            answer.step, answer.counts = self._steps, self._counts

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
        self._count_run()
        if self._steps == answer.step:
            return Gaps()
        longest_s = self._long_s[bisect_right(self._at, answer.step)]
        count, total_s = self._steps - answer.step, now_s - answer.begun_s
        return Gaps(*laid_out(self._counts - answer.counts), count, (), longest_s, total_s)
