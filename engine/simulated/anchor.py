"""A run of equal decode steps in virtual time."""

from dataclasses import dataclass

from engine.simulated.cost import StepCost


@dataclass(slots=True)
class Anchor:
    """Where a run of equal decode steps began; the end of its n-th step follows from here alone."""

    start_s: float
    batch: int
    context_tokens: int
    version: int
    steps: int = 0

    def end_s(self, cost: StepCost, steps: int) -> float:
        return self.start_s + cost.decode_run_s(self.batch, self.context_tokens, steps)

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
