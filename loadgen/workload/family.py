"""Synthetic families: published length distributions shipped as quantile tables."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from loadgen.demand import Chain, Demand
from loadgen.failure import LoadgenError
from loadgen.workload.copula import correlated, pearson_of, phi
from loadgen.workload.prefixes import PrefixModel
from loadgen.workload.quantiles import QuantileTable

SCHEMA = "loadgen-family/1"


@dataclass(frozen=True, slots=True)
class Family:
    """Draws lone requests; input and output are tied by their rank correlation only."""

    name: str
    title: str
    source: str
    licence: str
    input_tokens: QuantileTable
    output_tokens: QuantileTable
    rank_correlation: float = 0.0
    prefix: PrefixModel | None = None
    remarks: tuple[str, ...] = ()
    #: What the source's own arrivals look like: rate and coefficient of variation of the gaps.
    arrivals: dict[str, float] = field(default_factory=dict)
    mean_turns: float = 1.0

    def notes(self) -> Sequence[str]:
        return (f"{self.title}; source: {self.source}; licence: {self.licence}", *self.remarks)

    def draw(self, count: int | None, rng: np.random.Generator) -> Sequence[Chain]:
        if count is None:
            raise LoadgenError(f"{self.name} is endless: say how many requests or for how long")
        lengths_rng, prefix_rng = rng.spawn(2)
        normal = lengths_rng.standard_normal((count, 2))
        ours = pearson_of(self.rank_correlation)
        inputs = self.input_tokens.tokens(phi(normal[:, 0])).tolist()
        outputs = self.output_tokens.tokens(phi(correlated(normal[:, 0], normal[:, 1], ours))).tolist()
        if self.prefix is None:
            return [(Demand(i, o),) for i, o in zip(inputs, outputs, strict=True)]
        prefixes = self.prefix.draw(inputs, normal[:, 0], prefix_rng)
        block = self.prefix.block_tokens
        rows = zip(inputs, outputs, prefixes, strict=True)
        return [(Demand(i, o, prefix=ids, block_tokens=block),) for i, o, ids in rows]


def fixed(isl: int, osl: int) -> Family:
    """Every request the same length."""
    if isl < 1 or osl < 1:
        raise LoadgenError(f"workload: isl={isl} and osl={osl} must be at least 1")
    return Family("fixed", f"fixed {isl} in, {osl} out", "synthetic", "none", _constant(isl), _constant(osl))


def _constant(value: int) -> QuantileTable:
    return QuantileTable((0, 100), (value, value))


def from_dict(data: dict[str, Any]) -> Family:
    if data.get("schema") != SCHEMA:
        raise LoadgenError(f"workload: not a family of schema {SCHEMA}")
    grid = tuple(data["percentiles"])
    prefix = data.get("prefix")
    return Family(
        name=data["name"],
        title=data["title"],
        source=data["source"],
        licence=data["licence"],
        input_tokens=QuantileTable(grid, tuple(data["input_tokens"])),
        output_tokens=QuantileTable(grid, tuple(data["output_tokens"])),
        rank_correlation=data.get("rank_correlation", 0.0),
        prefix=None if prefix is None else _prefix(prefix),
        remarks=tuple(data.get("notes", ())),
        arrivals=data.get("arrivals", {}),
    )


def _prefix(data: dict[str, Any]) -> PrefixModel:
    depth = QuantileTable(tuple(data["depth_percentiles"]), tuple(data["depth"]))
    return PrefixModel(
        data["block_tokens"],
        data["system_blocks"],
        data["continue_share"],
        depth,
        data["correlation"],
        data["continue_correlation"],
    )


@cache
def shipped() -> dict[str, Family]:
    """The families in the package, by name."""
    found = {}
    for entry in files("loadgen.workload").joinpath("families").iterdir():
        if entry.name.endswith(".json"):
            family = from_dict(json.loads(entry.read_text()))
            found[family.name] = family
    return dict(sorted(found.items()))
