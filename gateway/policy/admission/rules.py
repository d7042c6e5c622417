"""Who may join a decode worker now: the rule that the gateway ships, and those that it is measured against. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from gateway.policy.admission.book import KvBook
from gateway.policy.admission.past_future import draw, peak_blocks
from gateway.policy.admission.risk import Budget, M, Outlook, highest
from gateway.policy.admission.rows import Candidate
from gateway.policy.estimate.estimate import LEVELS, Floats


class Verdict(StrEnum):
    ADMIT = "admit"
    WAIT = "wait"  # not now: the worker's other requests need the room
    NEVER = "never"  # not even with the worker to itself


@dataclass(frozen=True, slots=True)
class Decision:
    """`needed_blocks`: what the rule counts for the candidate alone. Rules without a forecast leave risk 0."""

    verdict: Verdict
    needed_blocks: float
    outlook: Outlook

    @property
    def admitted(self) -> bool:
        return self.verdict is Verdict.ADMIT


class AdmissionRule(Protocol):
    """Decides for one candidate on one worker's book; changes neither."""

    @property
    def name(self) -> str: ...

    def decide(self, candidate: Candidate, book: KvBook) -> Decision: ...


def shape_blocks(book: KvBook, tokens: Floats) -> Floats:
    """Whole blocks for so many tokens, the one to come included."""
    blocks: Floats = np.ceil((tokens + 1.0) / book.block_size_tokens)
    return blocks


def prompt_blocks(candidate: Candidate, book: KvBook) -> float:
    """Of its own; without a prefix that its answers share."""
    return candidate.answers * float(shape_blocks(book, np.array(float(candidate.prompt_tokens))))


def _settle(candidate: Candidate, book: KvBook, needed: float, peak: float, limit: float, step: int = 0) -> Decision:
    """Admits if the peak is within the limit, refuses for good what is too large for an empty worker."""
    needed, peak = needed + candidate.shared_blocks, peak + candidate.shared_blocks
    outlook = Outlook(peak, peak, limit - book.fixed_blocks, 0.0, step)
    smallest = prompt_blocks(candidate, book) + candidate.shared_blocks
    if max(needed, smallest) > limit:
        return Decision(Verdict.NEVER, needed, outlook)
    fits = peak <= limit - book.fixed_blocks
    return Decision(Verdict.ADMIT if fits else Verdict.WAIT, needed, outlook)


def alone(moments: Floats, blocks_total: int) -> float:
    """P(it outgrows the whole worker), from its moments: exact for one answer, which is there in full or not at all."""
    top = moments[M.TOP]
    too_large = top > blocks_total
    return float((moments[M.MEAN][too_large] / top[too_large]).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class ReserveLimit:
    """(a) Room for the declared `max_tokens` of everybody."""

    name: str = "reserve_max"

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        rows = book.rows
        here = slice(0, rows.count)
        tokens = float(candidate.prompt_tokens + candidate.limit_tokens)
        needed = candidate.answers * float(shape_blocks(book, np.array(tokens)))
        peak = float(shape_blocks(book, rows.prompt[here] + rows.limit[here]).sum()) + needed
        return _settle(candidate, book, needed, peak, book.blocks_total)


@dataclass(frozen=True, slots=True)
class PerRequest:
    """One number for each request, whatever the others do; one that has outgrown it counts with what it holds."""

    name: str
    tokens_of: Callable[[Floats], Floats]

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        rows = book.rows
        here = slice(0, rows.count)
        mine = self.tokens_of(np.asarray(candidate.estimate.lengths, dtype=np.float64)[None, :])
        grown = np.maximum(self.tokens_of(rows.lengths[here]), rows.generated(book.now))
        needed = candidate.answers * float(shape_blocks(book, candidate.prompt_tokens + mine)[0])
        peak = float(shape_blocks(book, rows.prompt[here] + grown).sum()) + needed
        return _settle(candidate, book, needed, peak, book.blocks_total)


def mean_rule() -> PerRequest:
    """(b) Room for the mean length of everybody."""
    weights = np.diff(LEVELS, append=1.0)

    def mean(lengths: Floats) -> Floats:
        middles = np.concatenate(((lengths[:, 1:] + lengths[:, :-1]) / 2.0, lengths[:, -1:]), axis=1)
        means: Floats = middles @ weights
        return means

    return PerRequest("mean", mean)


def quantile_rule(level: float) -> PerRequest:
    """(d) Room for the same quantile of everybody."""

    def pick(lengths: Floats) -> Floats:
        at = int(np.searchsorted(LEVELS, level))
        return lengths[:, min(at, lengths.shape[1] - 1)]

    return PerRequest(f"quantile_{level:g}", pick)


@dataclass(frozen=True, slots=True)
class Anything:
    """(c) No admission control: the engine queues first come, first served, and preempts."""

    name: str = "none"

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        needed = prompt_blocks(candidate, book)
        return _settle(candidate, book, needed, 0.0, book.blocks_total)


@dataclass(slots=True)
class PastFuture:
    """(e) The Past-Future scheduler (arXiv 2507.10150).

    Past: each request's length is drawn from the lengths seen so far, given what it has generated. Future: memory is
    computed at every completion. The candidate joins if the largest of these is within the capacity, less a reserved
    share. Of several draws the worst counts.
    """

    draws: int = 1
    reserved_share: float = 0.0
    seed: int = 0
    name: str = "past_future"
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        draws = (draw(book, candidate, self._random.random) for _ in range(self.draws))
        peak, step = max(peak_blocks(*drawn, book.block_size_tokens) for drawn in draws)
        needed = prompt_blocks(candidate, book)
        return _settle(candidate, book, needed, peak, book.blocks_total * (1.0 - self.reserved_share), step)


@dataclass(frozen=True, slots=True)
class Oracle:
    """(f) Knows every length: for books and candidates whose estimates are exact (all levels equal)."""

    name: str = "oracle"

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        peak, step = peak_blocks(*draw(book, candidate, np.ones), book.block_size_tokens)
        tokens = candidate.prompt_tokens + float(candidate.estimate.lengths[-1])
        needed = candidate.answers * float(shape_blocks(book, np.array(tokens - 1.0)))
        return _settle(candidate, book, needed, peak, book.blocks_total, step)


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """Ours: the chance of overrunning capacity less the emergency pool stays within epsilon at every future step.

    `never_at`: with the whole worker to itself, pool included, it would overrun with at least this chance. One that
    is merely too risky for an empty worker is admitted there: waiting would not make it smaller.
    """

    budget: Budget = field(default_factory=Budget)
    never_at: float = 0.5
    name: str = "budget"

    def decide(self, candidate: Candidate, book: KvBook) -> Decision:
        book.freshen()
        mine = book.moments_of(candidate)
        outlook = book.outlook_of(book.totals + mine, self.budget)
        needed = highest(mine[M.MEAN])
        if outlook.headroom_blocks >= 0.0:
            return Decision(Verdict.ADMIT, needed, outlook)
        if alone(mine, book.blocks_total) >= self.never_at:
            return Decision(Verdict.NEVER, needed, outlook)
        deserted = not len(book) and not book.fixed_blocks
        return Decision(Verdict.ADMIT if deserted else Verdict.WAIT, needed, outlook)
