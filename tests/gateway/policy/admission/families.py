"""Length estimates and books for the tests of admission."""

import math
from statistics import NormalDist

import numpy as np

from gateway.policy.admission import Budget, Candidate, KvBook, Outlook
from gateway.policy.estimate.estimate import LEVELS, LOOKUP, Estimate, Floats

_NORMAL = NormalDist()
SIZE = 16


def lognormal(median: float, sigma: float) -> Estimate:
    """A long-tailed family; sigma 0 is one length."""
    lengths = [max(1, round(median * math.exp(sigma * _NORMAL.inv_cdf(float(level))))) for level in LOOKUP]
    return Estimate(np.array(lengths, dtype=np.int64))


def book(blocks: int = 1_000, spread: float = 0.0) -> KvBook:
    return KvBook(blocks, SIZE, spread)


def drawn(estimate: Estimate, generated: Floats, random: np.random.Generator) -> Floats:
    """One length for each request of those that are possible after what it has generated."""
    lengths = estimate.lengths.astype(np.float64)
    reached = np.interp(generated, lengths, LEVELS)
    return np.asarray(np.interp(reached + (1 - reached) * random.random(len(generated)), LEVELS, lengths))


def joined(subject: KvBook, candidate: Candidate, budget: Budget) -> Outlook:
    """The outlook if the candidate were admitted."""
    subject.freshen()
    return subject.outlook_of(subject.totals + subject.moments_of(candidate), budget)
