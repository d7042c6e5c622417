"""Estimates against what came, by model and by how long answers became. Pure."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from gateway.policy.estimate import Estimate, FinishedBy

#: Upper edges of the answers' lengths, in tokens; one more bucket holds what is longer.
EDGES = (256, 1024, 4096, 16384)
_NAMES = (*(f"{low + 1}-{high}" for low, high in pairwise((0, *EDGES))), f"{EDGES[-1] + 1}-")
#: What an answer is held against: this quantile of the estimate that it was admitted with.
QUANTILE = 0.9


@dataclass(slots=True)
class Bucket:
    """Answers that a client or a failure ended count in the bucket that they had reached, and as over-estimates never:
    how long they would have become is not known."""

    answers: int = 0
    left_early: int = 0
    under_answers: int = 0
    under_tokens: int = 0
    over_answers: int = 0
    over_tokens: int = 0
    realised_tokens: int = 0


@dataclass(slots=True)
class Buckets:
    """By model and bucket (its place in `_NAMES`); models are those served."""

    _kept: dict[tuple[str, int], Bucket] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, str, Bucket]]:
        """By model, the short answers first."""
        for (model, at), bucket in sorted(self._kept.items(), key=lambda each: each[0]):
            yield model, _NAMES[at], bucket

    def record(self, model: str, estimate: Estimate, tokens: int, finished_by: FinishedBy) -> None:
        bucket = self._kept.setdefault((model, bisect_left(EDGES, tokens)), Bucket())
        reserved = estimate.quantile(QUANTILE)
        bucket.answers += 1
        bucket.realised_tokens += tokens
        bucket.left_early += finished_by.left_early
        if tokens > reserved:
            bucket.under_answers += 1
            bucket.under_tokens += tokens - reserved
        elif tokens < reserved and not finished_by.left_early:
            bucket.over_answers += 1
            bucket.over_tokens += reserved - tokens
