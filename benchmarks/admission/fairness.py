"""Who waits, and who is turned away: a tenant at ten times the others, a flood of short requests, priorities.

    python -m benchmarks.admission.fairness                     # three scenes, five seeds
    python -m benchmarks.admission.fairness --scene priority --seeds 3
    python -m benchmarks.admission.fairness --quick             # one seed

R1 traffic on the fleet of the contest, admission by forecast; who has waited 60 s is turned away. Slowdown: end-to-end time over
that on an idle fleet, of answers that came. `spent`: of the error budgets that every tenant has by default, that of the tenant
who fares worst (at most 5 % with a slowdown above 5; at most 5 % that do not complete); below 1 it is kept.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.admission.begun import begun
from benchmarks.admission.contenders import CONTENDERS, OURS
from benchmarks.admission.contest import mean_of
from benchmarks.admission.fleet import Service, layout
from benchmarks.admission.trial import KV_TOKENS, TOKEN_S, Window, merged, run, schedule
from benchmarks.admission.workloads import WORKLOADS
from gateway.policy.fairness.budget import FairnessBudget, Measure, Outcome
from gateway.policy_config import BandName, ClassPolicy, PolicyConfig, TenantPolicy
from loadgen.result import Ending, Result
from loadgen.schedule import Schedule
from loadgen.workload.spec import Catalogue

OTHERS = tuple(f"tenant-{n}" for n in range(1, 6))
WINDOW = Window(60.0, 150.0)
QUEUE_S = 60.0
#: Seconds a token and a prompt token take alone, on the cost table.
ALONE_TOKEN_S, ALONE_PROMPT_S, ALONE_S = 0.0215, 1 / 11_500, 0.1
#: Requests of the flood take so much less KV x time than one of R1.
SHORT, SHORTER = "fixed isl=200 osl=200", 11.0

_ENDINGS = {
    Ending.COMPLETED: Outcome.COMPLETED,
    Ending.REJECTED: Outcome.REJECTED,
    Ending.ABANDONED: Outcome.ABANDONED,
    Ending.TIMED_OUT: Outcome.TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class Lineup:
    """`hidden`: the gateway is not told who is who, so that all stand in one line, first come, first served."""

    name: str
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """`shares`: traffic by tenant, as a share of capacity. `who` is the one that the scene is about."""

    name: str
    who: str
    shares: dict[str, float]
    lines: tuple[Lineup, ...]
    short: bool = False

    def traffic(self, seed: int) -> Schedule:
        one = WORKLOADS["r1-production"]
        reasoning = sum(share for tenant, share in self.shares.items() if not (self.short and tenant == self.who))
        mix = Catalogue(None).mix([one.words])
        before = begun(mix, one.capacity_per_s * reasoning, TOKEN_S, KV_TOKENS, seed)
        rows = [(0.0, demand) for demand in before]
        for number, (tenant, share) in enumerate(self.shares.items()):
            short = self.short and tenant == self.who
            rate = one.capacity_per_s * share * (SHORTER if short else 1.0)
            words = SHORT if short else one.words
            mine = schedule(words, rate, WINDOW.end_s, seed * 100 + number, start_full=False)
            rows += [(each.at_s, replace(each.demand, tenant=tenant)) for each in mine.requests]
        return merged(mine, rows)


ONE_LINE, SHARES = Lineup("one line", hidden=True), Lineup("fair shares")
#: Shares by weight as large as the traffic, so that nobody is favoured; and the same with a band.
_WEIGHTS = {"vip": TenantPolicy(weight=1.0), "rest": TenantPolicy(weight=9.0)}
LEVEL = Lineup("no priority", PolicyConfig(tenants=_WEIGHTS))
BANDS = Lineup(
    "band `high`",
    PolicyConfig(tenants=_WEIGHTS, classes={"vip": ClassPolicy(tenants=("vip",), band=BandName.HIGH)}),
)
SCENES = (
    Scene("abuse", "abuser", {"abuser": 1.2, **dict.fromkeys(OTHERS[:4], 0.12)}, (ONE_LINE, SHARES)),
    Scene("flood", "flood", {"flood": 0.8, **dict.fromkeys(OTHERS, 0.14)}, (ONE_LINE, SHARES), short=True),
    Scene("priority", "vip", {"vip": 0.1, "rest": 0.9}, (LEVEL, BANDS)),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a group of tenants; what is spent is that of the one who fares worst."""

    completed: float
    tokens_per_s: float
    slowdown: float
    slowdown_p95: float
    slow_spent: float
    incomplete_spent: float


def figures(mine: Sequence[Result], tenants: dict[int, str]) -> Figures:
    budget = FairnessBudget(least=1)
    for one in mine:
        outcome = _ENDINGS.get(one.ending, Outcome.FAILED)
        budget.ended(tenants[one.index], outcome, WINDOW.end_s, one.end_s - one.intended_s, alone_s(one))
    spent = [budget.spending(tenant, WINDOW.end_s) for tenant in {tenants[one.index] for one in mine}]
    done = [one for one in mine if one.ending is Ending.COMPLETED]
    slow = [(one.end_s - one.intended_s) / alone_s(one) for one in done] or [float("nan")]
    return Figures(
        len(done) / max(1, len(mine)),
        sum(one.output_tokens for one in done) / WINDOW.length_s,
        float(np.mean(slow)),
        float(np.quantile(slow, 0.95)),
        max(each[Measure.SLOWDOWN].spent for each in spent),
        max(each[Measure.COMPLETION].spent for each in spent),
    )


def alone_s(result: Result) -> float:
    return ALONE_S + result.planned_prompt_tokens * ALONE_PROMPT_S + result.output_tokens * ALONE_TOKEN_S


def play(scene: Scene, line: Lineup, seed: int) -> tuple[Figures, Figures]:
    """Of the one that the scene is about, and of the others."""
    planned = scene.traffic(seed)
    tenants = {one.index: one.demand.tenant for one in planned.requests}
    if line.hidden:
        hidden = (replace(one, demand=replace(one.demand, tenant="")) for one in planned.requests)
        planned = replace(planned, requests=tuple(hidden))
    _, results = run(CONTENDERS[OURS], layout(replace(Service(), queue_s=QUEUE_S)), planned, policy=line.policy)
    judged = [one for one in results if tenants[one.index] and WINDOW.warm_s <= one.intended_s <= WINDOW.end_s]
    who = [one for one in judged if tenants[one.index] == scene.who]
    return figures(who, tenants), figures([one for one in judged if tenants[one.index] != scene.who], tenants)


def row(scene: Scene, line: Lineup, name: str, found: Sequence[Figures]) -> str:
    return (
        f"| {scene.name} | {line.name} | {name} | {mean_of(f.completed for f in found):.1%}"
        f" | {mean_of(f.tokens_per_s for f in found):.0f} | {mean_of(f.slowdown for f in found):.2f}"
        f" | {mean_of(f.slowdown_p95 for f in found):.2f} | {mean_of(f.slow_spent for f in found):.1f}"
        f" | {mean_of(f.incomplete_spent for f in found):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in SCENES])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    head = (
        "scene", "line", "who", "completed", "tokens/s", "slowdown", "its p95", "slowdown spent", "completion spent",
    )  # fmt: skip
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for scene in SCENES:
        if given.scene and scene.name not in given.scene:
            continue
        for line in scene.lines:
            found = [play(scene, line, seed) for seed in range(1, 2 if given.quick else given.seeds + 1)]
            for name, rows in zip((scene.who, "the others"), zip(*found, strict=True), strict=True):
                print(row(scene, line, name, rows), flush=True)


if __name__ == "__main__":
    main()
