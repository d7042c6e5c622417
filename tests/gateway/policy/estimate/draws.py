"""Lengths to test with: lognormal draws and the fitted families of the load generator."""

from collections.abc import Iterable

import numpy as np

from gateway.policy.estimate import Drift, Features, FinishedBy, Knobs, LengthModel
from loadgen.workload.family import shipped

CHAT = Features(model="m", prompt_tokens=100, tenant="a", task="chat")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lognormal(median: float, sigma: float, count: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    lengths = median * np.exp(sigma * rng.standard_normal(count))
    return [max(1, round(tokens)) for tokens in lengths.tolist()]


def family(name: str, count: int, seed: int = 0) -> list[int]:
    chains = shipped()[name].draw(count, np.random.default_rng(seed))
    return [demand.output_tokens for chain in chains for demand in chain]


def model(knobs: Knobs | None = None, clock: Clock | None = None) -> LengthModel:
    return LengthModel(knobs or Knobs(), clock or Clock())


def feed(into: LengthModel, lengths: Iterable[int], features: Features = CHAT) -> list[tuple[int, Drift]]:
    """Whole answers, in order; the drifts, each with the number of answers it came after."""
    found = []
    for number, tokens in enumerate(lengths, 1):
        found += [(number, drift) for drift in into.observe(features, tokens, FinishedBy.STOP)]
    return found
