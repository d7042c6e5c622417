"""From a question to a plan."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from loadgen.bound import Resource
from loadgen.failure import InterruptedEarlyError, LoadgenError
from loadgen.plan.bottleneck import Bottleneck, bottleneck_of
from loadgen.plan.candidate import Candidate, Family
from loadgen.plan.crew import INTERRUPTED, Crew
from loadgen.plan.further import Answered, answer
from loadgen.plan.question import Question
from loadgen.plan.race import Halving, Race, Stage, Standing, Watch
from loadgen.plan.ranking import Row, best_of, pareto, rank, unreached, verdict
from loadgen.plan.space import Dominated, Space, candidates
from loadgen.plan.trial import accounted
from loadgen.plan.what_if import what_if
from loadgen.plan.worth import Worth, worth

#: What is rerun for a what-if: the winner, and the next ones, with the best of each family among them.
_FEW = 3
#: So far above the rate that it holds is a layout looked at to see what breaks: the first of these at which its goal does.
_OVER = (1.06, 1.15, 1.3, 1.6)


@dataclass(frozen=True, slots=True)
class Asked:
    """`running` is the layout of today; `prices` per GPU-hour by profile, for those that are known."""

    question: Question
    space: Space
    what_ifs: tuple[str, ...] = ()
    marginal: bool = True
    running: Candidate | None = None
    prices: tuple[tuple[str, float], ...] = ()
    halving: Halving = field(default_factory=Halving)

    def price(self, candidate: Candidate) -> float | None:
        """Of the whole layout, per hour."""
        known = dict(self.prices)
        total = 0.0
        for part in candidate.parts:
            if part.engine.profile not in known:
                return None
            total += known[part.engine.profile] * part.gpus
        return total


@dataclass(frozen=True, slots=True)
class Planned:
    """`found` are all layouts that there are, `standings` those that were begun with. `incomplete` says what cut it short,
    if something did."""

    asked: Asked
    found: tuple[Candidate, ...]
    rows: tuple[Row, ...]
    standings: tuple[Standing, ...]
    dominated: tuple[Dominated, ...]
    bottlenecks: tuple[tuple[Candidate, Bottleneck], ...]
    answered: tuple[Answered, ...]
    worth: tuple[Worth, ...]
    incomplete: str
    wall_s: float
    simulations: int
    requests: int

    @property
    def winner(self) -> Row:
        return self.rows[0]

    @property
    def verdict(self) -> str:
        said = verdict(self.rows, unreached(self.found, self.standings, self.rows))
        if all(one.family is Family.COLOCATED for one in self.found):
            said = "Do not disaggregate: there is no layout of these GPUs with two pools."
        if not self.incomplete:
            return said
        looked, every = sum(one.stage is not Stage.UNTRIED for one in self.standings), len(self.found)
        what = f"{looked} of {every} layouts were looked at" if looked < every else "the search did not come to its end"
        return f"No last word, as {what}. {said}"

    @property
    def running(self) -> Row | None:
        return next((row for row in self.rows if row.candidate == self.asked.running), None)

    @property
    def front(self) -> list[Row]:
        """Rows that no other beats at everything: goodput per GPU, latencies and, where it is known, price."""
        prices = {row.candidate: price for row in self.rows if (price := self.price_per_good(row)) is not None}
        return pareto(self.rows, prices)

    @property
    def cheapest(self) -> Row | None:
        """Of those that were looked at as long as the winner: whose good requests cost the least. None without prices."""
        known = [row for row in self.rows if row.stage is self.winner.stage and self.price_per_good(row) is not None]
        return min(known, key=lambda row: self.price_per_good(row) or 0.0, default=None)

    def price_per_good(self, row: Row) -> float | None:
        """At the highest rate; requests that were not good are paid for, too."""
        price = self.asked.price(row.candidate)
        return None if price is None else price / 3600 / (row.rate * row.goal)

    def stages(self) -> dict[str, int]:
        counts = Counter(s.stage for s in self.standings)
        return {stage.name.lower(): counts[stage] for stage in Stage}


def make_plan(asked: Asked, crew: Crew, watch: Watch, clock: Callable[[], float] = time.monotonic) -> Planned:
    """Raises LoadgenError when no layout fits, and when none holds the limits at any rate."""
    began_s = clock()
    question = asked.question
    found, dominated = candidates(asked.space)
    if asked.running is not None and asked.running not in found:
        found.append(asked.running)
    cases = [what_if(words, question, found[:1], asked.space.gpus_per_node) for words in asked.what_ifs]
    race = Race(question, crew, asked.halving, watch)
    race.keep = asked.running
    race.run(found)
    rows = rank(race.standings, question.goals)
    if not rows:
        kind = InterruptedEarlyError if crew.stopped == INTERRUPTED else LoadgenError
        raise kind(_none(race.standings, crew))
    few = _few(rows)
    bottlenecks = [] if crew.stopped else _bottlenecks(rows, asked, crew, watch)
    rates = {row.candidate: row.rate for row in few}
    again = [what_if(case.words, question, list(rates), asked.space.gpus_per_node) for case in cases]
    answered = answer(again, question, rates, crew, asked.halving.wide_effort, watch)
    more = _worth(rows[0], asked, crew, watch) if asked.marginal else []
    return Planned(
        asked,
        tuple(found),
        tuple(rows),
        tuple(race.standings),
        tuple(dominated),
        tuple(bottlenecks),
        tuple(answered),
        tuple(more),
        crew.stopped or ("no time to look at all layouts" if race.late else ""),
        clock() - began_s,
        race.simulations,
        race.requests,
    )


def _worth(winner: Row, asked: Asked, crew: Crew, watch: Watch) -> list[Worth]:
    effort, price_ph = asked.halving.close_effort, asked.price(winner.candidate)
    return worth(winner.candidate, asked.question, winner.rate, crew, effort, price_ph=price_ph, watch=watch)


def _none(standings: list[Standing], crew: Crew) -> str:
    if crew.stopped or all(s.stage is Stage.UNTRIED for s in standings):
        return f"no layout was measured: {crew.stopped or 'no time'}"
    reasons = Counter(s.bound.resource for s in standings if s.bound.rate_per_s == 0)
    if reasons and sum(reasons.values()) == len(standings):
        limit = "TTFT" if reasons.most_common(1)[0][0] is Resource.TTFT else "TPOT"
        return f"no layout holds the limits at any rate: even on an idle fleet too many requests miss the {limit} limit"
    return "no layout holds the limits at any rate that was tried; loosen them, or use a faster or larger fleet"


def _few(rows: list[Row]) -> list[Row]:
    kept = dict.fromkeys(row.candidate for row in rows[:_FEW])
    for family in Family:
        best = best_of(rows, family)
        if best is not None:
            kept[best.candidate] = None
    return [row for row in rows if row.candidate in kept]


def _explained(rows: list[Row]) -> list[Row]:
    best = [best_of(rows, family) for family in Family]
    return [row for row in rows if any(row is one for one in best)]


def _bottlenecks(rows: list[Row], asked: Asked, crew: Crew, watch: Watch) -> list[tuple[Candidate, Bottleneck]]:
    explained = _explained(rows)
    found: list[tuple[Candidate, Bottleneck]] = []
    with crew.interruptible():
        for row in explained:
            found.append(_bottleneck(row, asked))
            watch("what limits", len(found), len(explained))
    return found


def _bottleneck(row: Row, asked: Asked) -> tuple[Candidate, Bottleneck]:
    question = asked.question
    layout = question.layout(row.candidate)
    for over in _OVER:
        seen = accounted(layout, row.candidate, question, row.rate * over, asked.halving.final_effort)
        if sum(j.good for j in seen.judged) < row.goal * len(seen.judged):
            break
    return row.candidate, bottleneck_of(seen)
