"""Which requests a batch is made of."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from loadgen.workload.family import Family, shipped
from loadgen.workload.quantiles import GRID, QuantileTable

#: No output is longer; the shipped family is capped there too.
LONGEST = 32_768


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The shipped family made to the published shape, with outputs times `scale`."""

    scale: float = 1.0

    def workload(self) -> Family:
        family = shipped()["natural-reasoning"]
        if self.scale == 1.0:
            return family
        table = family.output_tokens
        values = tuple(min(max(value * self.scale, 1.0), float(LONGEST)) for value in table.values)
        return replace(family, output_tokens=QuantileTable(table.percentiles, values))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Outputs with this mean and coefficient of variation; prompts of the shipped family."""

    mean: float
    cv: float

    def workload(self) -> Family:
        return replace(shipped()["natural-reasoning"], output_tokens=self._table())

    def _table(self) -> QuantileTable:
        if not self.cv:
            return QuantileTable((0, 100), (self.mean, self.mean))
        sigma = math.sqrt(math.log1p(self.cv * self.cv))
        grid = [min(max(p / 100, 5e-4), 1 - 5e-5) for p in GRID]
        raw = [math.exp(sigma * NormalDist().inv_cdf(p)) for p in grid]
        factor = self.mean / QuantileTable(GRID, tuple(raw)).mean
        return QuantileTable(GRID, tuple(min(max(value * factor, 1.0), float(LONGEST)) for value in raw))


Lengths = Reasoning | Lognormal
