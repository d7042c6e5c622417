"""Limits on a whole run: percentiles of slowdowns (Splitwise) or multiples of the lowest load (Mooncake, arXiv)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from loadgen.result import Ending, Result
from loadgen.slo.constraint import value_ms


class Basis(StrEnum):
    #: Each request against the same request alone.
    SLOWDOWN = "slowdown"
    #: The run's percentile against the same percentile at the lowest load.
    LOWEST_LOAD = "lowest_load"


@dataclass(frozen=True, slots=True)
class Condition:
    metric: str
    percentile: float
    factor: float


@dataclass(frozen=True, slots=True)
class ConditionResult:
    condition: Condition
    value: float

    @property
    def held(self) -> bool:
        return self.value <= self.condition.factor


class Reference(Protocol):
    """Unloaded latencies to hold requests against."""

    def unloaded_ms(self, metric: str, result: Result) -> float | None:
        """What the metric of this very request would be with nobody else there."""
        ...

    def percentile_ms(self, metric: str, percentile: float) -> float:
        """The percentile over the whole reference run."""
        ...


@dataclass(frozen=True, slots=True)
class RelativePolicy:
    """All conditions must hold. A request that gave no latency counts as infinitely slow: it was offered too."""

    conditions: tuple[Condition, ...]
    basis: Basis
    name: str = ""
    source: str = ""

    @property
    def form(self) -> str:
        return (
            "percentile limits over slowdowns against the same request unloaded"
            if self.basis is Basis.SLOWDOWN
            else "multiples of the percentile at the lowest load"
        )

    def scaled(self, factor: float) -> "RelativePolicy":
        conditions = tuple(Condition(c.metric, c.percentile, c.factor * factor) for c in self.conditions)
        return RelativePolicy(conditions, self.basis, self.name, self.source)

    def describe(self) -> list[str]:
        return [f"P{c.percentile:g} {c.metric} ≤ {c.factor:g}x" for c in self.conditions]

    def evaluate(self, results: Sequence[Result], reference: Reference) -> tuple[ConditionResult, ...]:
        return tuple(ConditionResult(c, self._value(c, results, reference)) for c in self.conditions)

    def _value(self, condition: Condition, results: Sequence[Result], reference: Reference) -> float:
        slow = self.basis is Basis.SLOWDOWN
        values = []
        for result in results:
            if result.ending is Ending.CANCELLED:
                continue
            value = value_ms(condition.metric, result) if result.completed else math.inf
            if value is None:
                continue
            # None: this request was not run alone. Slow or lost, it counts no more than the others that were not.
            # 0: all its tokens came in one read, which can tell no slowdown.
            base = reference.unloaded_ms(condition.metric, result) if slow else 1.0
            if base:
                values.append(value / base)
        if not values:
            return math.inf
        # "higher" keeps infinities whole where interpolation would make a NaN of them
        top = float(np.percentile(values, condition.percentile, method="higher" if math.inf in values else "linear"))
        return top if slow else top / reference.percentile_ms(condition.metric, condition.percentile)


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """A run of the same schedule with one request at a time, matched by index."""

    by_index: Mapping[int, Result]

    @classmethod
    def of(cls, results: Sequence[Result]) -> "ReferenceRun":
        return cls({r.index: r for r in results if r.completed})

    def unloaded_ms(self, metric: str, result: Result) -> float | None:
        match = self.by_index.get(result.index)
        return None if match is None else value_ms(metric, match)

    def percentile_ms(self, metric: str, percentile: float) -> float:
        values = [v for r in self.by_index.values() if (v := value_ms(metric, r)) is not None]
        return float(np.percentile(values, percentile)) if values else math.nan
