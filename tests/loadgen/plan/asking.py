"""Questions small enough for a test."""

from loadgen.plan.question import Effort, Question
from loadgen.plan.race import Halving
from loadgen.slo.policy import build_policy
from loadgen.workload.spec import Catalogue

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


def question(workload: str = "fixed isl=1000 osl=20", goodput: str = "ttft:300 tpot:30") -> Question:
    return Question(Catalogue().mix([workload]), build_policy([goodput]), goals=(0.9,))
