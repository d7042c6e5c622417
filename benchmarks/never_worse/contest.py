"""One cell of the table: a model, a mix and its limits. Layouts are chosen on one seed and compared on others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.never_worse.arms import GPUS, Arm, Kind, fluid, static_colocated, static_splits
from benchmarks.never_worse.mixes import MIXES, SCREEN_SEED, Model
from benchmarks.never_worse.trial import Aim, Hunt, Length
from engine.simulated.cost import load_profile
from loadgen.workload.base import Workload
from loadgen.workload.spec import Catalogue

#: Brackets of the screen and of the comparison.
_COARSE, _FINE = 0.08, 0.015
#: An arm that does not hold this share of the best rate so far is left out after one run.
_BEHIND = 0.97


@dataclass(frozen=True, slots=True)
class Cell:
    """`rates` of the best arm of each kind, one a seed."""

    model: str
    mix: str
    aim: Aim
    names: dict[Kind, str]
    rates: dict[Kind, tuple[float, ...]]

    def rate(self, kind: Kind) -> float:
        return fmean(self.rates[kind])

    @property
    def best(self) -> Kind:
        """Of the static ones."""
        return max((Kind.COLOCATED, Kind.SPLIT), key=self.rate)

    def ratio(self, kind: Kind, to: Kind) -> float:
        return self.rate(kind) / self.rate(to) if self.rate(to) else 0.0


def _work(model: Model, workload: Workload) -> tuple[float, float]:
    """Seconds of all GPUs that a request's prompt and its answer take by the kernels alone."""
    profile = load_profile(f"{model.profile}?tp={model.degrees[0]}")
    demands = [demand for chain in workload.draw(500, np.random.default_rng(0)) for demand in chain]
    prompt = fmean(demand.prompt_tokens for demand in demands)
    output = fmean(demand.output_tokens for demand in demands)
    token_s = profile.cost.step_s(64, round(64 * (prompt + output / 2)), []) / 64
    workers = GPUS / model.degrees[0]
    return prompt * profile.cost.step_s(0, 0, [(1024, 0)]) / 1024 / workers, output * token_s / workers


def contest(
    model: Model, mix: str, aim: Aim, seeds: Sequence[int], judged: int, said: Callable[[str], None] = lambda _: None
) -> Cell:
    workload = Catalogue().mix(MIXES[mix])
    length = Length.of(workload, aim, judged)
    prompt_s, answer_s = _work(model, workload)
    start = 0.5 / (prompt_s + answer_s)
    chosen: dict[Kind, Arm] = {}
    found: dict[Kind, float] = {}
    every = {
        Kind.COLOCATED: static_colocated(model),
        Kind.SPLIT: static_splits(model, prompt_s / (prompt_s + answer_s)),
        Kind.ROUTED: fluid(model, aim, leans=False),
        Kind.FLUID: fluid(model, aim),
    }
    for kind, arms in every.items():
        for arm in arms:
            hunt = Hunt(arm.layout, workload, aim, length, SCREEN_SEED)
            known = found.get(kind, 0.0)
            if known and not hunt.holds(known * _BEHIND):
                continue
            rate = hunt.highest(known or start, _COARSE)
            said(f"screen {arm.name}: {rate:.3g}/s, {len(hunt.seen)} runs")
            if rate > known:
                found[kind], chosen[kind] = rate, arm
                start = rate
    rates: dict[Kind, tuple[float, ...]] = {}
    for kind, arm in chosen.items():
        hunts = [Hunt(arm.layout, workload, aim, length, seed) for seed in seeds]
        rates[kind] = tuple(hunt.highest(found[kind], _FINE) for hunt in hunts)
        said(f"{kind.value} {arm.name}: {', '.join(f'{rate:.3f}' for rate in rates[kind])}/s")
    for kind in Kind:
        rates.setdefault(kind, (0.0,))
    return Cell(model.name, mix, aim, {kind: arm.name for kind, arm in chosen.items()}, rates)
