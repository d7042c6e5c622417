"""What is compared: static layouts, and fluid fleets under the one configuration of the policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import product
from math import inf
from statistics import fmean

import numpy as np

from benchmarks.never_worse.mixes import Model
from benchmarks.never_worse.trial import Aim
from engine.simulated.cost import load_profile
from gateway.policy.roles import Aims, Fluid, Knobs
from loadgen.simulate import Layout, Pool
from loadgen.workload.base import Workload
from proto.worker import Role

GPUS = 8
#: Token budgets of a step of colocated layouts.
BUDGETS = (512, 2048, 1024, 256)
#: Of prefill workers, and of fluid ones until the policy tells them another; the first is tried with every split, the others
#: with the best one.
PREFILL_BUDGETS = (2048, 1024, 4096, 512, 8192)

#: A run is short, and its last requests may wait: it may hold more than what could go on for ever.
_MARGIN = 1.1


class Kind(StrEnum):
    COLOCATED = "colocated"
    SPLIT = "P/D"
    ROUTED = "routed"  # colocated, with the policy's routing and chunk sizing; nothing is ever handed off
    FLUID = "fluid"


@dataclass(frozen=True, slots=True)
class Arm:
    """`sort`: the degrees, and how many workers of each; arms of one sort differ in token budgets alone. `most`: requests/s that its GPUs could carry by the kernels alone, with nothing ever waiting; not known of colocated ones,
    where decoding hides behind prompts. `others`: the same with other budgets."""

    kind: Kind
    name: str
    sort: str
    layout: Layout
    most: float = inf
    others: "tuple[Callable[[], Arm], ...]" = ()


@dataclass(frozen=True, slots=True)
class Work:
    """GPU seconds that the mean request takes by the kernels alone, for each degree of TP: its prompt in chunks of 2,048, its
    answer in a batch of 256."""

    prompt_gpu_s: Mapping[int, float]
    answer_gpu_s: Mapping[int, float]

    @property
    def start(self) -> float:
        """A rate to begin a search with, in requests/s of all GPUs: half of what the best degree could carry."""
        return GPUS / 2 / min(self.prompt_gpu_s[tp] + self.answer_gpu_s[tp] for tp in self.prompt_gpu_s)

    @classmethod
    def of(cls, model: Model, workload: Workload) -> "Work":
        demands = [demand for chain in workload.draw(500, np.random.default_rng(0)) for demand in chain]
        prompt = fmean(demand.prompt_tokens for demand in demands)
        output = fmean(demand.output_tokens for demand in demands)
        costs = {tp: load_profile(f"{model.profile}?tp={tp}").cost for tp in model.degrees}
        chunk_s = {tp: tp * cost.step_s(0, 0, [(2048, 0)]) / 2048 for tp, cost in costs.items()}
        token_s = {tp: tp * c.step_s(256, round(256 * (prompt + output / 2)), []) / 256 for tp, c in costs.items()}
        return cls({tp: prompt * s for tp, s in chunk_s.items()}, {tp: output * s for tp, s in token_s.items()})


def static_colocated(model: Model) -> list[Arm]:
    """Every degree with every budget: the best budget of one degree is not that of another."""
    arms = []
    for budget, tp in product(BUDGETS, _likely_first(model)):
        layout = _layout((_pool(model, Role.BOTH, tp, GPUS // tp, budget),))
        sort = f"{GPUS // tp}C TP{tp}"
        arms.append(Arm(Kind.COLOCATED, f"{sort}/{budget}", sort, layout))
    return arms


def static_splits(model: Model, work: Work) -> list[Arm]:
    """All splits with one degree for prefill and one for decode, those first that could carry the most."""
    arms = []
    for small, tp in product(model.degrees, model.degrees):
        for prefill in range(1, (GPUS - 1) // small + 1):
            left = GPUS - prefill * small
            if not left % tp:
                most = _MARGIN * min(prefill * small / work.prompt_gpu_s[small], left / work.answer_gpu_s[tp])
                arms.append(split(model, (small, prefill), (tp, left // tp), PREFILL_BUDGETS[0], most))
    return sorted(arms, key=lambda arm: -arm.most)


def split(model: Model, prefill: tuple[int, int], decode: tuple[int, int], budget: int, most: float) -> Arm:
    """`prefill`, `decode`: the degree, and how many workers."""
    pools = (
        _pool(model, Role.PREFILL, *prefill, budget),
        _pool(model, Role.DECODE, *decode, PREFILL_BUDGETS[0]),
    )
    prefills, decodes = f"{prefill[1]}P TP{prefill[0]}", f"{decode[1]}D TP{decode[0]}"
    budgets = PREFILL_BUDGETS[1:] if budget == PREFILL_BUDGETS[0] else ()
    others = tuple(partial(split, model, prefill, decode, other, most) for other in budgets)
    return Arm(Kind.SPLIT, f"{prefills}/{budget} + {decodes}", f"{prefills} + {decodes}", _layout(pools), most, others)


def fluid(model: Model, aim: Aim, *, leans: bool = True) -> list[Arm]:
    """The degree is the layout's, chosen as for static layouts; the policy has no setting that differs between arms."""
    kind = Kind.FLUID if leans else Kind.ROUTED
    aims = Aims(aim.ttft_ms / 1e3, aim.tpot_ms / 1e3)
    make: Callable[[Callable[[], float]], Fluid] = partial(Fluid, aims, knobs=Knobs(leans=leans))
    arms = []
    for tp in _likely_first(model):
        name = f"{GPUS // tp}{kind.value} TP{tp}"
        layout = _layout((_pool(model, Role.BOTH, tp, GPUS // tp, PREFILL_BUDGETS[0]),))
        arms.append(Arm(kind, name, name, replace(layout, roles=make)))
    return arms


def named(model: Model, aim: Aim, name: str) -> Arm | None:
    """As tables write it: `4C TP2/512`, `6P TP1/2048 + 1D TP2`, `4F TP2`."""
    for arm in (*fluid(model, aim), *fluid(model, aim, leans=False), *static_colocated(model)):
        if name == short(arm.name):
            return arm
    work = Work(dict.fromkeys(model.degrees, 1.0), dict.fromkeys(model.degrees, 1.0))
    for arm in static_splits(model, work):
        if name.partition("/")[0] == arm.name.partition("/")[0]:
            budgets = (replace(arm, most=inf), *(replace(other(), most=inf) for other in arm.others))
            if found := next((one for one in budgets if one.name == name), None):
                return found
    return None


def short(name: str) -> str:
    return name.replace(Kind.FLUID, "F").replace(Kind.ROUTED, "R")


def _likely_first(model: Model) -> tuple[int, ...]:
    """The search is short where the first layout is a good one."""
    return (*model.degrees[1:], *model.degrees[:1])


def _pool(model: Model, role: Role, tp: int, workers: int, budget: int) -> Pool:
    return Pool.of(role, workers, load_profile(f"{model.profile}?tp={tp}&tokens={budget}"))


def _layout(pools: tuple[Pool, ...]) -> Layout:
    """Engines queue and preempt on their own: reserving all of a long answer's growth costs every arm a third and more
    where KV is short, and would hide what is compared."""
    return Layout(pools, admission=False, client_timeout_s=1200.0)
