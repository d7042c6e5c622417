"""A run that goes on only as long as it can change the answer.

The schedule says beforehand how many requests are judged. So once more of them are bad than the goal allows, the rest need
not be simulated; and once all of them have ended, neither need those that were sent after them to keep the fleet busy.
Nothing is estimated: the whole run would give the same answer.
"""

from dataclasses import dataclass

from loadgen.measure.verdict import judge
from loadgen.plan.question import Question
from loadgen.result import Ending, Result
from loadgen.simulate.flight import Flight
from loadgen.simulate.simulation import Simulation
from loadgen.slo.policy import Policy

#: How often the judged are looked at while they are sent.
_LOOKS = 32
#: Of a limit. Below it nothing is called late that the judge, who counts in milliseconds, would not.
_SLACK = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Ran:
    """`results` of what was sent by the end; what was still open counts as timed out. `bad`: how many of the judged have
    missed. `cut`: the run was ended when these were too many; otherwise every judged request has ended."""

    results: tuple[Result, ...]
    judged: int
    bad: int
    cut: bool


def run(
    simulation: Simulation,
    question: Question,
    window: tuple[float, float],
    goal: float,
    allowed: float | None = None,
) -> Ran:
    """`simulation` must not have begun. Nobody samples its telemetry: that would cut long strides of decode steps short.
    `allowed`: how many may be bad, where the goal is that of several runs together."""
    planned = simulation.schedule.requests
    if any(p.after is not None for p in planned):  # nobody knows beforehand when a turn of a session is sent
        results = simulation.run().results
        judged = in_window(results, window)
        return Ran(results, len(judged), sum(_missed(result, question.policy) for result in judged), cut=False)
    watch = _Watch(simulation, question, [p.index for p in planned if window[0] <= p.at_s < window[1]])
    count = len(watch.open)
    if allowed is None:
        allowed = count * (1 - goal) + 1e-9
    simulation.clients.start()
    until_s, look_s = window[0], (window[1] - window[0]) / _LOOKS
    while simulation.clients.left and watch.open and len(watch.bad) <= allowed:
        until_s += look_s
        simulation.fleet.engines.run(simulation.legs.hear, until_s=until_s)
        watch.look(until_s)
    return Ran(_results(simulation, until_s), count, len(watch.bad), cut=len(watch.bad) > allowed)


class _Watch:
    """Of the judged: `open` have not ended, `bad` have missed a limit or surely will."""

    def __init__(self, simulation: Simulation, question: Question, judged: list[int]) -> None:
        self._clients, self._policy, self._limits = simulation.clients, question.policy, question.limits
        self.open = judged
        self.bad: set[int] = set()

    def look(self, now_s: float) -> None:
        still = []
        for index in self.open:
            result = self._clients.results[index]
            if result is None:
                still.append(index)
                flight = self._clients.under_way.get(index)
                if flight is not None and self._late(flight, now_s):
                    self.bad.add(index)
            elif _missed(result, self._policy):
                self.bad.add(index)
        self.open = still

    def _late(self, flight: Flight, now_s: float) -> bool:
        if flight.planned.demand.leave_after_tokens is not None:
            return False  # it may end as one that is not judged
        ttft_s, tpot_s = self._limits.ttft_s, self._limits.tpot_s
        first_s = now_s if flight.first_s is None else flight.first_s
        if ttft_s is not None and first_s - flight.intended_s > ttft_s * _SLACK:
            return True
        return tpot_s is not None and now_s - first_s > tpot_s * (flight.output_tokens - 1) * _SLACK


def in_window(results: tuple[Result, ...], window: tuple[float, float]) -> list[Result]:
    """Of the requests that are judged."""
    return [r for r in results if window[0] <= r.intended_s < window[1]]


def _missed(result: Result, policy: Policy) -> bool:
    """Who was left by its client is not judged."""
    return result.ending is not Ending.CANCELLED and not judge(result, policy).good


def _results(simulation: Simulation, now_s: float) -> tuple[Result, ...]:
    ended = [result for result in simulation.clients.results if result is not None]
    still = [
        flight.result(now_s, Ending.TIMED_OUT, "open at the end", 0, int(flight.first_s is not None))
        for flight in simulation.clients.under_way.values()
    ]
    return tuple(ended + still)
