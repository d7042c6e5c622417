"""One layout at one rate in virtual time, judged; and the highest rate at which it keeps its promise."""

import math
from dataclasses import dataclass

import numpy as np

from engine.simulated.time_account import TimeAccount
from loadgen.measure.interval import Interval, share_over_time
from loadgen.measure.saturation import detect
from loadgen.measure.verdict import Judged, judge_all
from loadgen.plan.candidate import Candidate
from loadgen.plan.decision import in_window, run
from loadgen.plan.question import Effort, Question
from loadgen.result import Ending
from loadgen.search import Bisection, Probe
from loadgen.simulate.layout import Layout
from loadgen.simulate.simulation import Outcome, Simulation

#: Below this share of the bound a layout is given up.
_LEAST_SHARE = 1 / 128
#: The first step away from a rate of which little is known.
_STEP = 1.12
#: How often it is seen who holds the places.
_LOOKS = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """One simulation. Latencies in milliseconds over the judged that completed; `cut` were still open at the client's
    time-out, so their latency is only known to be longer. `out_of_reach`: the goal for which the run was ended, as soon as
    it could no longer be reached; `attainment` is then the most that it could have come to, and the rest is not known."""

    rate: float
    attainment: float
    interval: Interval
    saturated: bool
    judged: int
    cut: int
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    out_of_reach: float | None = None

    def says(self, goal: float) -> bool:
        """Whether it is known if the goal was kept."""
        return self.out_of_reach is None or goal >= self.out_of_reach

    def holds(self, goal: float) -> bool:
        return self.attainment >= goal and not self.saturated


@dataclass(frozen=True, slots=True)
class Highest:
    """`rate` kept the goal, `above` did not; 0 where nothing did. `at` is what was seen at `rate`."""

    goal: float
    seed: int
    rate: float
    above: float
    at: Seen | None


def observe(candidate: Candidate, question: Question, rate: float, seed: int, effort: Effort, goal: float) -> Seen:
    """Ends as soon as the goal is out of reach."""
    schedule, window = question.schedule(rate, seed, effort)
    layout = question.layout(candidate)
    ran = run(Simulation(layout, schedule), question, window, goal)
    if ran.cut:
        most = (ran.judged - ran.bad) / ran.judged
        return Seen(rate, most, Interval(0.0, most), False, ran.judged, 0, None, None, goal)
    judged = judge_all(in_window(ran.results, window), question.policy)
    flags = [j.good for j in judged]
    done = [j.result for j in judged if j.result.completed]
    return Seen(
        rate,
        sum(flags) / len(flags) if flags else 0.0,
        share_over_time(flags),
        # those sent later only keep the fleet busy, and some of them have not ended
        detect([r for r in ran.results if r.intended_s < window[1]]).saturated,
        len(flags),
        sum(j.result.ending is Ending.TIMED_OUT for j in judged),
        _p99_ms([r.ttft_s for r in done]),
        _p99_ms([r.tpot_s for r in done]),
    )


def _p99_ms(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.percentile(known, 99)) * 1e3 if known else None


@dataclass(frozen=True, slots=True)
class Task:
    """The highest rate of one layout. `floor`: a layout that fails there is of no interest and is given up at once.
    `step`: the first factor away from `start`; the next ones grow."""

    candidate: Candidate
    question: Question
    effort: Effort
    goals: tuple[float, ...]
    start: float
    ceiling: float
    floor: float = 0.0
    step: float = _STEP


@dataclass(frozen=True, slots=True)
class Report:
    """`given_up`: failed at the task's floor. `highest`: by goal, then by seed."""

    task: Task
    highest: tuple[Highest, ...]
    simulations: int
    requests: int
    given_up: bool = False

    def rates(self, goal: float) -> list[float]:
        return [h.rate for h in self.highest if h.goal == goal]

    def rate(self, goal: float) -> float:
        rates = self.rates(goal)
        return sum(rates) / len(rates) if rates else 0.0


def measure(task: Task) -> Report:
    """Every seed on its own, so that layouts can be compared seed by seed."""
    found: dict[tuple[int, float], Highest] = {}
    hunts: list[_Hunt] = []
    for seed in task.effort.every_seed:
        hunt = _Hunt(task, seed)
        hunts.append(hunt)
        if task.floor and len(hunts) == 1 and not hunt.see(task.floor, min(task.goals)).holds(min(task.goals)):
            return Report(task, (), *_spent(hunts), given_up=True)
        for goal in sorted(task.goals):
            found[seed, goal] = hunt.highest(goal, *_near(task, found, seed, goal))
    return Report(task, tuple(found.values()), *_spent(hunts))


def _near(task: Task, found: dict[tuple[int, float], Highest], seed: int, goal: float) -> tuple[float, float]:
    """Where to begin, and the first step from there: what the seed before found for this goal, moved by as much as this
    seed's lower goal was from that one's."""
    here = [h.rate for (s, _), h in found.items() if s == seed and h.rate]
    before = found.get((seed - 1, goal))
    if before is None or not before.rate:
        return (here[-1] if here else task.start), task.step
    lower = [(found[seed - 1, g].rate, found[seed, g].rate) for g in sorted(task.goals) if g < goal]
    moved = lower[-1][1] / lower[-1][0] if lower and all(lower[-1]) else 1.0
    return before.rate * moved, 1 + 2 * task.effort.precision


def _spent(hunts: "list[_Hunt]") -> tuple[int, int]:
    return sum(hunt.simulations for hunt in hunts), sum(s.judged for hunt in hunts for s in hunt.seen.values())


class _Hunt:
    """Bisection for one layout and seed; what was seen for one goal serves the other."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._seed = task, seed
        self.seen: dict[float, Seen] = {}
        self.simulations = 0

    def see(self, rate: float, goal: float) -> Seen:
        if rate not in self.seen or not self.seen[rate].says(goal):
            task = self._task
            self.seen[rate] = observe(task.candidate, task.question, rate, self._seed, task.effort, goal)
            self.simulations += 1
        return self.seen[rate]

    def highest(self, goal: float, start: float, step: float) -> Highest:
        lowest = self._task.ceiling * _LEAST_SHARE
        for number in range(64):
            low, high = self._bracket(goal)
            rate = self._next(low, high, start, min(2.0, step ** (1 + number)), lowest)
            if rate is None:
                break
            self.see(rate, goal)
        low, high = self._bracket(goal)
        return Highest(goal, self._seed, low or 0.0, high or math.inf, self.seen[low] if low else None)

    def _bracket(self, goal: float) -> tuple[float | None, float | None]:
        known = [s for s in self.seen.values() if s.says(goal)]
        probes = [Probe(s.rate, s.attainment, s.interval, s.saturated) for s in known]
        return Bisection(goal, 1.0, 0.0, math.inf, probes=probes).bracket()

    def _next(self, low: float | None, high: float | None, start: float, step: float, lowest: float) -> float | None:
        if low is None and high is None:
            return start
        if high is None:
            assert low is not None
            return low * step
        if low is None:
            return None if high <= lowest else max(lowest, high / step)
        return None if high / low <= 1 + self._task.effort.precision else math.sqrt(low * high)


def accounted(layout: Layout, candidate: Candidate, question: Question, rate: float, effort: Effort) -> "Accounted":
    """A simulation that also keeps the account of every engine's time."""
    schedule, window = question.schedule(rate, effort.first_seed, effort)
    simulation = Simulation(layout, schedule)
    accounts = {name: TimeAccount() for name in simulation.fleet.workers}
    for name, engine in simulation.fleet.engines.engines.items():
        engine.account = accounts[name]
    places = _Places(simulation, schedule.window_s)
    outcome = simulation.run()
    judged = judge_all(in_window(outcome.results, window), question.policy)
    return Accounted(candidate, rate, outcome, tuple(judged), accounts, places.uncomputed)


class _Places:
    """Looks, while requests are being sent and some of them wait for a place, at who has the places."""

    def __init__(self, simulation: Simulation, until_s: float) -> None:
        self._simulation, self._until_s = simulation, until_s
        self._shares: list[float] = []
        self._look()

    @property
    def uncomputed(self) -> float:
        return sum(self._shares) / len(self._shares) if self._shares else 0.0

    def _look(self) -> None:
        simulation = self._simulation
        engines = simulation.fleet.engines
        if len(simulation.desk.dispatch):
            placed = [f for f in simulation.clients.under_way.values() if f.decode is not None]
            if placed:
                self._shares.append(sum(f.first_s is None for f in placed) / len(placed))
        if engines.now_s < self._until_s:
            engines.at(engines.now_s + self._until_s / _LOOKS, self._look)


@dataclass(frozen=True, slots=True)
class Accounted:
    """`uncomputed`: of the requests that had a place on a decode worker while others waited for one, the share whose prompt
    was not computed yet."""

    candidate: Candidate
    rate: float
    outcome: Outcome
    judged: tuple[Judged, ...]
    accounts: dict[str, TimeAccount]
    uncomputed: float
