"""Memory at every future completion, for one length of each request (arXiv 2507.10150). Pure.

Sort the requests by what remains, the longest first. When the i-th of them completes, exactly the first i are there,
and each has grown by what remained of the i-th: M_i = sum over j <= i of (prompt + generated) + i x remaining_i.
"""

from collections.abc import Callable

import numpy as np

from gateway.policy.admission.book import KvBook
from gateway.policy.admission.rows import Candidate
from gateway.policy.admission.survival import Table
from gateway.policy.estimate.estimate import LEVELS, Floats


def draw(book: KvBook, candidate: Candidate, uniform: Callable[[int], Floats]) -> tuple[Floats, Floats]:
    """(tokens now, tokens to come) of everybody and the candidate, each length at a drawn level of what is possible.

    A request that arrives later counts as if it were here and had so much more to go; its prompt is less now by
    the tokens that the others gain meanwhile, so that all totals from its arrival on are right.
    """
    rows, count, new = book.rows, book.rows.count, np.ones(candidate.answers)
    mine = np.tile(np.asarray(candidate.estimate.lengths, dtype=np.float64), (candidate.answers, 1))
    lengths = np.concatenate((rows.lengths[:count], mine))
    limits = np.append(rows.limit[:count], new * candidate.limit_tokens)[:, None]
    elapsed = np.append(book.now - rows.started[:count], new * (candidate.generated_tokens - candidate.arrival_steps))
    generated = np.maximum(0.0, elapsed)
    left = Table(lengths, limits).beyond(generated[:, None])[:, 0]
    drawn = _inverse(lengths, 1.0 - left * (1.0 - uniform(len(lengths))))
    drawn = np.minimum(drawn, limits[:, 0])
    prompt = np.append(rows.prompt[:count], new * candidate.prompt_tokens)
    return prompt + elapsed, np.maximum(drawn - elapsed, 1.0)


def peak_blocks(tokens: Floats, remaining: Floats, size: int) -> tuple[float, int]:
    """(the most blocks, the step at which they are held). Each request's last block counts whole: an upper bound."""
    order = np.argsort(-remaining, kind="stable")
    left = remaining[order]
    ranks = np.arange(1, len(order) + 1)
    # In tokens, then rounded up for each request: at most size - 1 tokens of a last block are empty.
    totals = (np.cumsum(tokens[order]) + ranks * (left + size - 1.0)) / size
    worst = int(np.argmax(totals))
    return float(totals[worst]), int(left[worst])


def _inverse(lengths: Floats, levels: Floats) -> Floats:
    """Each row's length at its own level: a straight line between the table's levels."""
    above = np.clip(np.searchsorted(LEVELS, levels, side="right"), 1, len(LEVELS) - 1)
    rows = np.arange(len(lengths))
    low, high = LEVELS[above - 1], LEVELS[above]
    share = np.clip((levels - low) / (high - low), 0.0, 1.0)
    drawn: Floats = lengths[rows, above - 1] + share * (lengths[rows, above] - lengths[rows, above - 1])
    return drawn
