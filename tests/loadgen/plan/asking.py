"""Questions small enough for a test."""

from collections.abc import Sequence

from loadgen.bound import Bound, Resource
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.plan import Asked, Planned
from loadgen.plan.question import FINAL, Effort, Question
from loadgen.plan.race import Halving, Stage, Standing
from loadgen.plan.ranking import rank
from loadgen.plan.space import Gpus, Space
from loadgen.plan.trial import Highest, Report, Task
from loadgen.slo.policy import build_policy
from loadgen.workload.spec import Catalogue
from proto.worker import Role

PROFILE = "h200-sxm/llama-3.1-8b"
BRIEF = Effort(seeds=1, judged=40, span=0.5, precision=0.3, lead=0.2, tail=0.1)
#: Long enough that a backlog cannot hide in it.
TWICE = Effort(seeds=2, judged=160, span=1.5, precision=0.2, lead=0.5, tail=0.1)
QUICK = Halving(
    heat=3,
    final=2,
    each_family=1,
    screen_effort=BRIEF,
    heat_effort=BRIEF,
    final_effort=TWICE,
    wide_effort=BRIEF,
    close_effort=BRIEF,
)

COLOCATED = Candidate((Part(Role.BOTH, 2, Engine(PROFILE, tokens=2048)),))
APART = Candidate((Part(Role.PREFILL, 1, Engine(PROFILE)), Part(Role.DECODE, 1, Engine(PROFILE))), 512)
MIXED = Candidate((Part(Role.BOTH, 1, Engine(PROFILE)), Part(Role.DECODE, 1, Engine(PROFILE))), 512)


def question(
    workload: str = "fixed isl=1000 osl=20", goodput: str = "ttft:300 tpot:30", goals: tuple[float, ...] = (0.9,)
) -> Question:
    return Question(Catalogue().mix([workload]), build_policy([goodput]), goals=goals)


def standing(
    candidate: Candidate, rates: Sequence[float], stage: Stage = Stage.FINAL, strict: Sequence[float] = ()
) -> Standing:
    """`rates` by seed at 90 %; `strict` at 99 %."""
    asked = question()
    highest = [Highest(0.9, seed, rate, rate * 1.02, None) for seed, rate in enumerate(rates)]
    highest += [Highest(0.99, seed, rate, rate * 1.02, None) for seed, rate in enumerate(strict)]
    report = Report(Task(candidate, asked, FINAL, (0.9,), 1.0, 100.0), tuple(highest), 1, 1) if rates else None
    return Standing(candidate, Bound(100.0, Resource.KV, 0), 100.0, stage, report)


def planned(
    *standings: Standing,
    goals: tuple[float, ...] = (0.9,),
    prices: tuple[tuple[str, float], ...] = (),
    running: Candidate | None = None,
) -> Planned:
    asked = Asked(question(goals=goals), Space((Gpus(PROFILE, 2),)), prices=prices, running=running)
    found = tuple(one.candidate for one in standings)
    return Planned(asked, found, tuple(rank(standings, goals)), standings, (), (), (), (), "", 1.0, 1, 1)
