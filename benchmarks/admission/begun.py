"""Answers that are under way when a run begins, as they would be after hours: so that long ones need not be waited for.

At a steady rate an answer is met with a chance proportional to its length, and at a random place of it. What it has
generated is part of its prompt here. Every rule is told the rest of these answers exactly, and learns nothing of them.
"""

from dataclasses import replace

import numpy as np

from loadgen.demand import Demand
from loadgen.workload.base import Workload

BEGUN = "begun"
#: Drawn to pick from.
_DRAWN = 20_000


def begun(workload: Workload, rate: float, token_s: float, kv_tokens: float, seed: int) -> list[Demand]:
    """As many as `rate` keeps busy at `token_s` a token, but for those beyond `kv_tokens` of KV."""
    rng = np.random.default_rng((seed, 77))
    drawn = [chain[0] for chain in workload.draw(_DRAWN, rng)]
    lengths = np.array([demand.output_tokens for demand in drawn], dtype=np.float64)
    count = round(rate * float(lengths.mean()) * token_s)
    picked = rng.choice(len(drawn), size=count, p=lengths / lengths.sum())
    found, held = [], 0
    for at, share in zip(picked, rng.random(count), strict=True):
        demand = drawn[at]
        generated = int(share * demand.output_tokens)
        held += demand.prompt_tokens + generated
        if held > kv_tokens:
            break
        found.append(
            replace(
                demand,
                prompt_tokens=demand.prompt_tokens + generated,
                output_tokens=max(1, demand.output_tokens - generated),
                klass=BEGUN,
                prefix=(),
            )
        )
    return found
