"""How pure replicas compare with tensor parallelism over the size of the model, and where both are as fast.

The rate of a layout is that of the fluid limit (`loadgen.bound`): an endless stream, at most `at_once` answers in flight.
There is no last answer to wait for, and a replica whose KV happens to be full while another's is not costs nothing: kind to
replicas.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from loadgen.bound import Pool, bound_of
from loadgen.demand import Demand
from loadgen.plan.crossover.dense import Sizes
from loadgen.plan.crossover.variant import AS_TABULATED, Variant
from loadgen.reproduce.batch import MAX_NUM_SEQS, draw
from loadgen.reproduce.layout import Layout
from loadgen.reproduce.lengths import Lognormal

_SAMPLE = 1000
#: The largest model that one GPU holds is known to this share of its size.
_PRECISION = 0.02
#: How many sizes between two tables a curve has, and how many where only its crossing is wanted.
_DRAWN, _LOOKED_AT = 3, 1


@dataclass(frozen=True, slots=True)
class Setting:
    """Outputs of this mean and coefficient of variation; `at_once` answers on `gpus` GPUs, shared out evenly, but no more in
    one engine than its limit, which is vLLM's default."""

    mean: float
    spread: float
    at_once: int
    gpus: int = 8
    max_num_seqs: int = MAX_NUM_SEQS

    @property
    def layouts(self) -> list[Layout]:
        """Replicas alone first."""
        degrees = [tp for tp in (1, 2, 4, 8) if tp <= self.gpus and self.gpus % tp == 0]
        return [Layout(dp=self.gpus // tp, tp=tp) for tp in degrees]


@dataclass(frozen=True, slots=True)
class Point:
    """`rates` in requests/s by layout, those that fit; `grade` says where the model's figures come from."""

    billions: float
    grade: str
    rates: dict[str, float]
    replicas: str

    @property
    def table(self) -> str:
        """The model whose table this is; "" for a size between two."""
        return self.grade.removeprefix("table ") if self.grade.startswith("table ") else ""

    @property
    def gain(self) -> float:
        """How many times faster the best layout with TP is than replicas; infinite where a model does not fit one GPU."""
        alone = self.rates.get(self.replicas, 0.0)
        others = [rate for name, rate in self.rates.items() if name != self.replicas]
        return max(others, default=0.0) / alone if alone else math.inf

    @property
    def best(self) -> str:
        return max(self.rates, key=self.rates.__getitem__) if self.rates else "none"


@dataclass(frozen=True, slots=True)
class Crossing:
    """From `billions` on TP is faster. `bound`: "below" the smallest table it already is, "room" up to there replicas are
    and beyond it a model does not fit one GPU, "above" they are as far as the tables go."""

    setting: Setting
    variant: str
    billions: float
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    model: str
    setting: Setting
    variant: Variant = AS_TABULATED
    without: str = ""


def point(task: Task, billions: float) -> Point:
    setting = task.setting
    dense = _sizes(task.model, task.without).at(billions)
    limit, rates = task.variant.max_num_seqs or setting.max_num_seqs, {}
    for layout in setting.layouts:
        engine = dense.engine(layout.tp, task.variant, min(limit, max(1, setting.at_once // layout.dp)))
        if engine is not None:
            rates[str(layout)] = bound_of([Pool(engine, layout.dp)], _demands(setting)).rate_per_s
    return Point(billions, dense.grade, rates, str(setting.layouts[0]))


def curve(task: Task, between: int = _DRAWN) -> list[Point]:
    """At the sizes of the tables and some between them, up to the first that has no replicas of one GPU."""
    found = []
    for billions in _steps(_sizes(task.model, task.without).anchors, between):
        found.append(point(task, billions))
        if math.isinf(found[-1].gain):
            break
    return found


def crossing(task: Task, points: Sequence[Point] = ()) -> Crossing:
    """From which size on TP wins at all larger ones. `points`: a curve, where there is one."""
    seen = points or curve(task, _LOOKED_AT)
    last = max((n for n, one in enumerate(seen) if one.gain < 1), default=-1)
    if last < 0:
        return Crossing(task.setting, task.variant.words, seen[0].billions, "below")
    if last + 1 == len(seen):
        return Crossing(task.setting, task.variant.words, seen[last].billions, "above")
    low, high = seen[last], seen[last + 1]
    while math.isinf(high.gain) and high.billions / low.billions > 1 + _PRECISION:
        middle = point(task, math.sqrt(low.billions * high.billions))
        low, high = (middle, high) if middle.gain < 1 else (low, middle)
    if math.isinf(high.gain):
        return Crossing(task.setting, task.variant.words, low.billions, "room")
    share = -math.log(low.gain) / math.log(high.gain / low.gain)
    return Crossing(task.setting, task.variant.words, low.billions * (high.billions / low.billions) ** share)


def _steps(anchors: Sequence[float], between: int) -> list[float]:
    """So many sizes between two tables."""
    shares = [number / (between + 1) for number in range(between + 1)]
    return [*(low * (high / low) ** share for low, high in pairwise(anchors) for share in shares), anchors[-1]]


@lru_cache(maxsize=8)
def _sizes(model: str, without: str) -> Sizes:
    return Sizes(model, without)


@lru_cache(maxsize=32)
def _demands(setting: Setting) -> tuple[Demand, ...]:
    return tuple(draw(Lognormal(setting.mean, setting.spread).workload(), _SAMPLE, 1))
