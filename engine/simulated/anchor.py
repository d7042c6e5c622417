"""A run of equal decode steps in virtual time."""

from dataclasses import dataclass, field

from engine.simulated.cost import StepCost

_KEPT = 16


@dataclass(slots=True)
class Anchor:
    """Where a run of equal decode steps began; the end of its n-th step follows from here alone.

    The same ends are asked for again and again, so that the latest are kept.
    """

    start_s: float
    batch: int
    context_tokens: int
    version: int
    steps: int = 0
    _ends_s: dict[int, float] = field(default_factory=dict)

    def end_s(self, cost: StepCost, steps: int) -> float:
        end_s = self._ends_s.get(steps)
        if end_s is None:
            if len(self._ends_s) >= _KEPT:
                self._ends_s.clear()
            end_s = self.start_s + cost.decode_run_s(self.batch, self.context_tokens, steps)
            self._ends_s[steps] = end_s
        return end_s

    def steps_before(self, cost: StepCost, at_s: float, more: int) -> int:
        """How many of the step in flight and up to `more` to come end before `at_s`; at least the one in flight does."""
        done = self.steps
        guess = cost.decode_steps_within(self.batch, self.context_tokens, at_s - self.start_s)
        steps = min(max(guess - done, 1), more)
        while steps < more and self.end_s(cost, done + steps + 1) < at_s:
            steps += 1
        while steps > 1 and self.end_s(cost, done + steps) >= at_s:
            steps -= 1
        return steps
