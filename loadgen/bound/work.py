"""What a sample of requests asks of an engine, lengths known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.demand import Demand
from loadgen.result import Floats
from loadgen.workload.fit import shared_blocks


@dataclass(frozen=True, slots=True)
class Limits:
    """Per request; None means none. TPOT as everywhere: (E2E - TTFT) / (output tokens - 1)."""

    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Per offered request: the least that has to be done so that a share of them is served.

    `decode_tokens` come out of decode steps (the first token of an answer comes out of its prompt's step);
    `context_tokens` is the sum over those tokens of the context that each reads; `prompt_tokens` are not in any
    cache. The contexts are what occurs. `most_shared` tokens, at the most, does a context have in common with others, so
    that they hold them once.
    """

    decode_tokens: float
    context_tokens: float
    prompt_tokens: float
    least_prompt: int
    least_context: int
    most_context: int
    most_shared: int = 0


def work_of(demands: Sequence[Demand], attainment: float = 1.0) -> Work:
    """Of each resource the least that `attainment` of the requests can ask for, as if the dearest were refused.

    Equal prefixes are computed once, by anybody. Raises ValueError for an empty sample or a share outside (0, 1].
    """
    if not demands:
        raise ValueError("a bound needs a sample of requests")
    if not 0 < attainment <= 1:
        raise ValueError(f"attainment={attainment:g} is not above 0 and at most 1")
    prompts = np.array([d.prompt_tokens for d in demands], dtype=np.float64)
    outputs = np.array([d.output_tokens for d in demands], dtype=np.float64)
    hits = np.array(shared_blocks(demands), dtype=np.float64) * np.array([d.block_tokens for d in demands])
    decodes = outputs - 1
    return Work(
        decode_tokens=_least(decodes, attainment),
        context_tokens=_least(decodes * prompts + outputs * decodes / 2, attainment),
        prompt_tokens=_least(np.maximum(prompts - hits, 1.0), attainment),
        least_prompt=int(np.maximum(prompts - hits, 1.0).min()),
        least_context=int(prompts.min()) + 1,
        most_context=int((prompts + outputs).max()),
        most_shared=int(np.minimum(hits, prompts).max()),
    )


def _least(values: Floats, attainment: float) -> float:
    """The mean over all requests of what the cheapest share of them needs."""
    whole = np.sort(values)
    served = attainment * whole.size
    count = int(served)
    rest = (served - count) * whole[count] if count < whole.size else 0.0
    return float((whole[:count].sum() + rest) / whole.size)
