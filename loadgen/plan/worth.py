"""What more hardware would be worth to a layout: in good requests, and in money."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.simulated.cost import load_budget
from loadgen.measure.interval import Interval, paired_difference
from loadgen.plan.candidate import Candidate, Engine
from loadgen.plan.crew import Crew
from loadgen.plan.question import CLOSE, Effort, Question
from loadgen.plan.race import Watch, find_bound
from loadgen.plan.trial import Report, Task, measure


@dataclass(frozen=True, slots=True)
class Step:
    """Something that could be bought: the layout and the question with it, and how much of it that is in all."""

    what: str
    candidate: Candidate
    question: Question
    amount: float
    unit: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What a step gains the winner: requests/s at the goal, the same as a share of its rate, and good requests an hour for
    each `unit` that is bought.

    `pays_up_to`: a unit's price an hour at which a good request costs as much with it as without. None where the layout
    has no price, or where no gain is shown.
    """

    what: str
    gain: float
    share: float
    share_95: Interval
    unit: str
    good_ph_per_unit: float
    pays_up_to: float | None

    @property
    def shown(self) -> bool:
        return self.share_95.low > 0


def steps_up(candidate: Candidate, question: Question) -> list[Step]:
    """What could be bought. R-61 asks for +20 % of each of four resources, R-66 for memory and links."""
    now, gpus = question.changes, candidate.gpus
    memory_gib = sum(part.gpus * _gpu_gib(part.engine) for part in candidate.parts) * now.hbm
    hardware = (
        ("+10 % HBM capacity", replace(now, hbm=now.hbm * 1.1), memory_gib * 0.1, "GiB"),
        ("+20 % HBM bandwidth", replace(now, bandwidth=now.bandwidth * 1.2), gpus, "GPU"),
        ("+20 % arithmetic", replace(now, compute=now.compute * 1.2), gpus, "GPU"),
        ("+20 % scale-up link", replace(now, scale_up=now.scale_up * 1.2), gpus, "GPU"),
        ("+20 % scale-out link", replace(now, scale_out=now.scale_out * 1.2), gpus, "GPU"),
        ("2x link for KV", replace(now, kv_link=now.kv_link * 2), gpus, "GPU"),
    )
    made = [Step(what, candidate, replace(question, changes=new), amount, unit) for what, new, amount, unit in hardware]
    for place, part in enumerate(candidate.parts):
        more = replace(part, workers=part.workers + 1)
        parts = (*candidate.parts[:place], more, *candidate.parts[place + 1 :])
        new_gpus = part.engine.gpus
        what = f"+{new_gpus} GPU{'s' if new_gpus > 1 else ''} ({part.role.value} worker)"
        made.append(Step(what, replace(candidate, parts=parts), question, new_gpus, "GPU"))
    return made


def _gpu_gib(engine: Engine) -> float:
    return load_budget(engine.words()).gpu_bytes / 2**30


def worth(
    candidate: Candidate,
    question: Question,
    rate: float,
    crew: Crew,
    effort: Effort = CLOSE,
    *,
    price_ph: float | None = None,
    watch: Watch = lambda stage, done, total: None,
) -> list[Worth]:
    """Against the winner itself on the same seeds and effort; `price_ph` is what all of it costs an hour. Steps that time
    did not allow are missing."""
    goal = min(question.goals)
    bought = steps_up(candidate, question)
    steps = [Step("", candidate, question, 0, ""), *bought]

    def tasks() -> Iterator[tuple[str, Task]]:
        for step in steps:
            ceiling = find_bound((step.question, step.candidate, goal)).rate_per_s
            yield step.what, Task(step.candidate, step.question, effort, (goal,), rate, ceiling)

    found: dict[str, list[float]] = {}
    for (what, _), report in crew.map(_measured, tasks()):
        found[what] = report.rates(goal)
        watch("margins", len(found), len(steps))
    base = found.get("", [])
    if not sum(base):
        return []
    return [_worth(step, found[step.what], base, goal, price_ph) for step in bought if step.what in found]


def _worth(step: Step, rates: list[float], base: list[float], goal: float, price_ph: float | None) -> Worth:
    mean = sum(base) / len(base)
    gain = sum(rates) / len(rates) - mean
    spread = paired_difference(rates, base)
    share_95 = Interval(spread.low / mean, spread.high / mean)
    known = price_ph is not None and share_95.low > 0
    pays_up_to = gain / mean * (price_ph or 0.0) / step.amount if known else None
    good_ph = gain * goal * 3600
    return Worth(step.what, gain, gain / mean, share_95, step.unit, good_ph / step.amount, pays_up_to)


def _measured(item: tuple[str, Task]) -> Report:
    return measure(item[1])
