"""Turns a trace into a family: percentiles and one rank correlation stay, the rows do not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loadgen.demand import Demand
from loadgen.result import Floats
from loadgen.workload.copula import pearson_of, phi
from loadgen.workload.family import SCHEMA
from loadgen.workload.prefixes import PrefixModel
from loadgen.workload.quantiles import GRID, QuantileTable


def fit(
    name: str, title: str, source: str, licence: str, rows: Sequence[Demand], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The family as the JSON it is stored in."""
    inputs = np.asarray([d.prompt_tokens for d in rows], dtype=np.float64)
    outputs = np.asarray([d.output_tokens for d in rows], dtype=np.float64)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "title": title,
        "source": source,
        "licence": licence,
        "notes": list(notes),
        "percentiles": list(GRID),
        "input_tokens": list(QuantileTable.fit(inputs).values),
        "output_tokens": list(QuantileTable.fit(outputs).values),
        "rank_correlation": round(spearman(inputs, outputs), 3),
        "arrivals": _arrivals(rows),
    }
    if any(d.prefix for d in rows):
        data["prefix"] = fit_prefix(rows)
    return data


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; ties are broken at random, which is what drawing from tables does to them."""
    rng = np.random.default_rng(0)
    first, second = (np.argsort(np.lexsort((rng.random(v.size), v))).astype(np.float64) for v in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def _arrivals(rows: Sequence[Demand]) -> dict[str, float]:
    times = np.sort([d.at_s for d in rows if d.at_s is not None])
    if times.size < 3 or times[-1] == times[0]:
        return {}
    gaps = np.diff(times)
    rate = (times.size - 1) / (times[-1] - times[0])
    return {"rate": round(float(rate), 3), "gap_cv": round(float(gaps.std() / gaps.mean()), 2)}


def shared_blocks(rows: Sequence[Demand]) -> list[int]:
    """Leading blocks of each prompt that an earlier prompt already had: what an endless cache would hit."""
    seen: set[int] = set()
    hits = []
    for row in rows:
        hit = next((i for i, block in enumerate(row.prefix) if block not in seen), len(row.prefix))
        hits.append(hit)
        seen.update(row.prefix)
    return hits


def fit_prefix(rows: Sequence[Demand]) -> dict[str, Any]:
    """A prompt that shares more than the common system blocks continues an earlier one."""
    system = 0
    while all(len(d.prefix) > system and d.prefix[system] == rows[0].prefix[system] for d in rows):
        system += 1
    hits = np.asarray(shared_blocks(rows))
    blocks = np.asarray([len(d.prefix) for d in rows])
    deep = hits > system
    share = hits[deep] / blocks[deep]
    depth = QuantileTable.fit(share, tuple(range(0, 101, 2)))
    correlation = _normal_correlation(share, blocks[deep].astype(np.float64))
    model = PrefixModel(rows[0].block_tokens, system, round(float(deep.mean()), 4), depth, correlation)
    return {
        "block_tokens": model.block_tokens,
        "system_blocks": system,
        "continue_share": model.continue_share,
        "depth_percentiles": list(depth.percentiles),
        "depth": list(depth.values),
        "correlation": correlation,
        "continue_correlation": _calibrated(model, rows, float(hits.sum() / blocks.sum())),
    }


def _normal_correlation(a: Floats, b: Floats) -> float:
    return round(pearson_of(spearman(a, b)), 3)


def _calibrated(model: PrefixModel, rows: Sequence[Demand], target: float) -> float:
    """The tie of continuing to length at which the model shares as many blocks as the source does."""
    inputs = QuantileTable.fit([d.prompt_tokens for d in rows])
    low, high = -0.9, 0.9
    for _ in range(10):
        middle = (low + high) / 2
        tied = replace(model, continue_correlation=middle)
        low, high = (middle, high) if _model_share(tied, inputs, len(rows)) < target else (low, middle)
    return round((low + high) / 2, 3)


def _model_share(model: PrefixModel, inputs: QuantileTable, count: int) -> float:
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(count)
    tokens = inputs.tokens(phi(normal)).tolist()
    drawn = [Demand(t, 1, prefix=ids) for t, ids in zip(tokens, model.draw(tokens, normal, rng), strict=True)]
    return sum(shared_blocks(drawn)) / sum(len(d.prefix) for d in drawn)
