"""One latency limit on one request, and vLLM's `--goodput` syntax for a set of them."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from loadgen.failure import LoadgenError
from loadgen.result import Result

#: `itl_top10` is FAST'25 Mooncake's reading of TBT: the mean of the longest tenth of a request's token gaps.
_NAMED = frozenset({"ttft", "tpot", "e2el", "itl_mean", "itl_max", "itl_top10"})
_PERCENTILE = re.compile(r"itl_p(\d{1,2}(?:\.\d+)?)")
NAMES = "ttft, tpot, e2el, itl_mean, itl_max, itl_top10 or itl_pNN"


@dataclass(frozen=True, slots=True)
class Constraint:
    """`metric` of the request must not exceed `limit_ms`."""

    metric: str
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric}:{self.limit_ms:g}"

    def scaled(self, factor: float) -> "Constraint":
        return Constraint(self.metric, self.limit_ms * factor)


def value_ms(metric: str, result: Result) -> float | None:
    """The metric of a completed request in milliseconds; None where it does not apply."""
    match metric:
        case "ttft":
            seconds = result.ttft_s
        case "tpot":
            seconds = result.tpot_s
        case "e2el":
            seconds = result.e2e_s
        case _:
            seconds = _itl_s(metric, result)
    return None if seconds is None else seconds * 1e3


def _itl_s(metric: str, result: Result) -> float | None:
    gaps = result.token_gaps_s()
    if not gaps.size:
        return None
    if metric == "itl_mean":  # gaps add up to the stream
        return float(result.chunk_s[-1] - result.chunk_s[0]) / gaps.size
    if metric == "itl_max":
        return float(gaps.max())
    if metric == "itl_top10":
        return float(np.sort(gaps)[-math.ceil(gaps.size / 10) :].mean())
    match = _PERCENTILE.fullmatch(metric)
    assert match is not None
    return float(np.percentile(gaps, float(match[1])))


def parse_goodput(words: Iterable[str]) -> tuple[Constraint, ...]:
    """KEY:VALUE pairs in milliseconds, parted by spaces; refuses negative values and unknown names."""
    found: dict[str, Constraint] = {}
    for word in (part for text in words for part in text.split()):
        constraint = _parse_one(word)
        if constraint.metric in found:
            raise LoadgenError(f"SLO: {constraint.metric} is given twice")
        found[constraint.metric] = constraint
    return tuple(found.values())


def _parse_one(word: str) -> Constraint:
    metric, colon, text = word.partition(":")
    if not colon:
        raise LoadgenError(f"SLO: {word!r} is not KEY:VALUE, such as ttft:200 (milliseconds)")
    if metric not in _NAMED and not _PERCENTILE.fullmatch(metric):
        hint = "; say which percentile, such as itl_p99:50" if metric == "itl" else ""
        raise LoadgenError(f"SLO: unknown name {metric!r}; known are {NAMES}{hint}")
    try:
        limit = float(text)
    except ValueError:
        raise LoadgenError(f"SLO: {text!r} in {word!r} is not a number of milliseconds") from None
    if math.isnan(limit) or math.isinf(limit):
        raise LoadgenError(f"SLO: {text!r} in {word!r} is not a finite number of milliseconds")
    if limit < 0:
        raise LoadgenError(f"SLO: {word!r} is negative; limits are milliseconds of at least 0")
    return Constraint(metric, limit)
