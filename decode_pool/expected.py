"""The answers whose length is estimated: what they may come to hold, over all gateways. Pure."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from gateway.policy.admission import AdmissionRule, Budget, Candidate, Decision, ErrorBudget, KvBook, Outlook
from gateway.policy.admission.caution import Caution
from gateway.policy.admission.common_error import CommonError
from gateway.policy.admission.pool import PoolAccount
from gateway.policy.estimate.estimate import POINTS, Estimate, Lengths
from proto.reservation import ReserveRequest

log = logging.getLogger(__name__)

#: KV that is expected later than this many decode steps from now counts as if it came then: beyond the forecast's
#: horizon it would be promised for nothing.
MAX_ARRIVAL_STEPS = 16_384
_NOBODY = Candidate("", 0, Estimate.exactly(1), 1)


@dataclass(frozen=True, slots=True)
class Admission:
    """The worker's own knobs (docs/admission.md): whoever asks, the same capacity is promised by one rule.

    `epsilon`: None: which one is right is found out (`Caution`). `pool_share`: of all blocks, held back for what goes wrong.
    `spread`: of the common error of all lengths, before any have ended; `learn`: that error and a bias from the answers that end,
    and less of `epsilon` from overruns that came. `rule`: another rule in place of ours, to compare.
    """

    epsilon: float | None = None
    pool_share: float = 0.02
    spread: float = 0.1
    learn: bool = True
    rule: AdmissionRule | None = None


class Sequence(Protocol):
    """A running answer of the ledger's."""

    name: str
    tokens: int  # prompt and generated


@lru_cache(maxsize=256)  # a class of requests tells the same again and again
def _read(told: tuple[int, ...]) -> Lengths | None:
    """The lengths of an estimate; None where they are none. No answer is shorter than a token: one that could be has ended
    before it began, and its end is never expected."""
    if len(told) != POINTS or list(told) != sorted(told):
        return None
    lengths: Lengths = np.array(told, dtype=np.int64)
    if told[0] < 1:
        lengths = np.maximum(lengths, 1)
    lengths.setflags(write=False)
    return lengths


@dataclass(slots=True)
class _Answer:
    candidate: Candidate
    prompt_tokens: int  # all of it, the part that it shares with its siblings included
    seen_tokens: int = 0


@dataclass(slots=True)
class Expected:
    """A book of answers by name, kept in step with the tokens that they have really produced.

    `gained`: tokens of all of them since the book was last moved; whoever sees them adds them here.
    """

    blocks_total: int
    block_size_tokens: int
    window_tokens: int
    admission: Admission = field(default_factory=Admission)
    book: KvBook = field(init=False)
    pool: PoolAccount = field(init=False)
    error: CommonError = field(init=False)
    caution: Caution = field(init=False)
    budget: Budget = field(init=False)
    rule: AdmissionRule = field(init=False)
    _answers: dict[str, _Answer] = field(default_factory=dict)
    gained: int = 0
    _running: int = 0
    _unread: bool = False

    def __post_init__(self) -> None:
        self.caution = Caution(self.admission.epsilon)
        self.budget = Budget(self.caution.accepted, round(self.admission.pool_share * self.blocks_total))
        self.pool = PoolAccount(self.budget.pool_blocks)
        self.error = CommonError(self.admission.spread)
        learn = self.error if self.admission.learn else None
        self.book = KvBook(self.blocks_total, self.block_size_tokens, self.admission.spread, error=learn)
        self.rule = self.admission.rule or ErrorBudget(self.budget)

    def __len__(self) -> int:
        return len(self._answers)

    def candidate(self, request: ReserveRequest, step_time_s: float) -> Candidate | None:
        """None when it has no estimate, or one that this worker cannot read: then its declared growth counts."""
        if not request.lengths:
            return None
        lengths = _read(request.lengths)
        if lengths is None:
            if not self._unread:
                self._unread = True
                log.warning("length estimates of %s are not understood here; its limits count", request.gateway_id)
            return None
        answers, shared, own = max(1, request.sequences), 0, request.prompt_tokens
        # Of one answer that goes on here, its tokens are its own again, so that it is expected to live as long as any so old.
        generated = min(request.generated_tokens, own) if answers == 1 else 0
        own -= generated
        room = max(1, self.window_tokens - own)
        limit = min(request.limit_tokens or room, room)
        if answers > 1:
            shared, own = divmod(own, self.block_size_tokens)
        steps = round(min(request.arrival_s / step_time_s, MAX_ARRIVAL_STEPS)) if step_time_s > 0 else 0
        estimate = Estimate(lengths if lengths.item(-1) <= limit else np.minimum(lengths, limit), limit)
        kin = (request.gateway_id, request.lengths_of) if request.lengths_of else None
        # Waiting for its KV, even when that is due at once: it grows only when it has started.
        return Candidate("", own, estimate, limit, max(1, steps), generated, answers, shared, kin)

    def decide(self, candidate: Candidate, certain_blocks: int) -> Decision:
        """`certain_blocks`: all that is held or promised beside the answers in the book."""
        self.book.fixed_blocks = certain_blocks
        self.book.told(candidate)
        return self.rule.decide(candidate, self.book)

    def outlook(self, certain_blocks: int) -> Outlook:
        """By the worker's own rule: another one is asked what it would make of somebody who wants next to nothing."""
        self.book.fixed_blocks = certain_blocks
        if self.admission.rule is not None:
            return self.rule.decide(_NOBODY, self.book).outlook
        self.book.freshen()
        return self.book.outlook_of(self.book.totals, self.budget)

    def delayed(self, candidate: Candidate, request: ReserveRequest, decision: Decision) -> None:
        """It has to wait: for the pool's sake, or for everybody's. Every asking has a name of its own, by `-r` at its end."""
        tokens = float(np.median(candidate.estimate.lengths)) * candidate.answers + request.prompt_tokens
        name = f"{request.gateway_id}/{request.request_id.rpartition('-r')[0] or request.request_id}"
        self.pool.refused(name, decision.outlook.headroom_blocks, tokens)

    def promise(self, candidate: Candidate, request: ReserveRequest, names: Iterable[str]) -> None:
        alone = candidate.answers == 1 and not candidate.shared_blocks
        one = candidate if alone else replace(candidate, answers=1, shared_blocks=0)
        moments = self.book.moments_of(one)
        for name in names:
            self._answers[name] = _Answer(one, request.prompt_tokens - one.generated_tokens)
            self.book.admit(one, moments, name)

    def started(self, name: str, tokens: int) -> None:
        self._running += 1
        self._answers[name].seen_tokens = tokens
        self.book.arrived(name)

    def returned(self, name: str) -> None:
        """It answered nothing, and may be started again."""
        self._running -= 1
        self.book.remove(name)
        self.book.admit(self._answers[name].candidate, name=name)

    def ended(self, name: str, *, running: bool, finished: bool = False) -> None:
        self._running -= running
        self.book.remove(name, ended=finished)
        del self._answers[name]

    def keep_step(self, running: Iterable[Sequence]) -> None:
        """Moves the book to where the sequences are, once they have gained so much that it would draw a new curve."""
        if self.gained < self.book.patience * max(1, self._running):
            return
        self.gained = gained = 0
        if not self._answers:  # all growth is reserved in full: nothing was forecast that could be wrong
            return
        generated: dict[str, int] = {}
        for sequence in running:
            if (answer := self._answers.get(sequence.name)) is not None:
                tokens = sequence.tokens
                gained = max(gained, tokens - answer.seen_tokens)
                answer.seen_tokens = tokens
                generated[sequence.name] = max(0, tokens - answer.prompt_tokens)
        self.book.progress(gained)
        self.book.observed(generated)
        if self.admission.learn:
            self._budget_spent(gained)

    def answer_left(self) -> None:
        """For another worker: so answers can."""
        if self.admission.learn:
            self.caution.answer_left()
            self._heed()

    def _budget_spent(self, steps: int) -> None:
        held, life_steps = self.book.held_blocks, self.book.life_steps
        over, full = held > self.blocks_total - self.budget.pool_blocks, held > self.blocks_total
        self.caution.passed(steps, over=over, full=full, life_steps=life_steps)
        self._heed()

    def _heed(self) -> None:
        if (epsilon := self.caution.epsilon) != self.budget.epsilon:
            self.budget = replace(self.budget, epsilon=epsilon)
            self.rule = self.admission.rule or ErrorBudget(self.budget)
