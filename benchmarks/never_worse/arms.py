"""What is compared: static layouts, and fluid fleets under the one configuration of the policy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from benchmarks.never_worse.mixes import Model
from benchmarks.never_worse.trial import Aim
from engine.simulated.cost import load_profile
from gateway.policy.roles import Aims, Fluid, Knobs
from loadgen.simulate import Layout, Pool
from proto.worker import Role

GPUS = 8
#: Token budgets of a step that are tried for static layouts.
BUDGETS = (512, 256, 1024, 2048)
PREFILL_BUDGET = 2048


class Kind(StrEnum):
    COLOCATED = "colocated"
    SPLIT = "P/D"
    ROUTED = "routed"  # colocated, with the policy's routing and chunk sizing; nothing is ever handed off
    FLUID = "fluid"


@dataclass(frozen=True, slots=True)
class Arm:
    kind: Kind
    name: str
    layout: Layout


def static_colocated(model: Model) -> list[Arm]:
    arms = []
    for tp in _likely_first(model):
        for budget in BUDGETS:
            pools = (_pool(model, Role.BOTH, tp, GPUS // tp, budget),)
            arms.append(Arm(Kind.COLOCATED, f"{GPUS // tp}C TP{tp}/{budget}", _layout(pools)))
    return arms


def static_splits(model: Model, prefill_share: float) -> list[Arm]:
    """All splits of prefill workers of the smallest degree, with decode workers of each, those first that give prefill its
    share of the work."""
    small = model.degrees[0]
    arms = []
    for prefill in sorted(range(1, GPUS // small), key=lambda count: abs(count * small - GPUS * prefill_share)):
        left = GPUS - prefill * small
        for tp in model.degrees:
            if left % tp:
                continue
            pools = (
                _pool(model, Role.PREFILL, small, prefill, PREFILL_BUDGET),
                _pool(model, Role.DECODE, tp, left // tp, PREFILL_BUDGET),
            )
            arms.append(Arm(Kind.SPLIT, f"{prefill}P TP{small} + {left // tp}D TP{tp}", _layout(pools)))
    return arms


def fluid(model: Model, aim: Aim, *, leans: bool = True) -> list[Arm]:
    """The degree is the layout's, chosen as for static layouts; the policy has no setting that differs between arms."""
    kind = Kind.FLUID if leans else Kind.ROUTED
    aims = Aims(aim.ttft_ms / 1e3, aim.tpot_ms / 1e3)
    make: Callable[[Callable[[], float]], Fluid] = partial(Fluid, aims, knobs=Knobs(leans=leans))
    return [
        Arm(
            kind,
            f"{GPUS // tp}{kind.value} TP{tp}",
            replace(_layout((_pool(model, Role.BOTH, tp, GPUS // tp, PREFILL_BUDGET),)), roles=make),
        )
        for tp in _likely_first(model)
    ]


def _likely_first(model: Model) -> tuple[int, ...]:
    """The search is short where the first layout is a good one."""
    return (*model.degrees[1:], *model.degrees[:1])


def _pool(model: Model, role: Role, tp: int, workers: int, budget: int) -> Pool:
    return Pool.of(role, workers, load_profile(f"{model.profile}?tp={tp}&tokens={budget}"))


def _layout(pools: tuple[Pool, ...]) -> Layout:
    """Engines queue and preempt on their own: reserving all of a long answer's growth costs every arm a third and more
    where KV is short, and would hide what is compared."""
    return Layout(pools, admission=False, client_timeout_s=1200.0)
