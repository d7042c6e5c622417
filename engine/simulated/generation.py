"""One request in the engine: its sequence, its tokens, and how it ends."""

import time

from engine.base import EngineOutput
from engine.simulated.injector import Afflictions
from engine.simulated.sequence import Sequence, Status, TokenKeys
from engine.simulated.setup import MEAN_ANSWER, Setup
from engine.simulated.structured import UnsupportedSchemaError, minimal_json
from engine.simulated.tokens import TokenStream, prompt_logprobs, token_logprobs
from proto.fault import Fault, FaultError, FaultKind
from proto.precedence import rank
from proto.ticket import Ticket
from proto.work import FinishReason, PromptLogprobs, TokenLogprobs, Work
from transfer.ticket import HeldTicket, objection


class Generation:
    """Mutable state of one submitted request."""

    __slots__ = (
        "_block_size",
        "_drawn_from",
        "_hung_since_s",
        "_scripted",
        "_vocabulary",
        "aborted",
        "first_step_s",
        "generated",
        "handing_over",
        "hold",
        "kept_back",
        "last",
        "limit",
        "loading",
        "min_tokens",
        "pull",
        "queued",
        "sequence",
        "stop_ids",
        "stream",
        "struck",
        "submitted_s",
        "tokens",
        "transfer_s",
        "wants_logprobs",
        "work",
    )

    def __init__(
        self, work: Work, setup: Setup, struck: Afflictions, *, hold: bool, pull: Ticket | None, now_s: float
    ) -> None:
        sampling = work.sampling
        self.work = work
        self.struck = struck
        self.hold = hold
        self.pull = pull
        self.submitted_s = now_s
        self.first_step_s: float | None = None
        self.transfer_s = 0.0
        self.loading = False
        self.aborted = False
        self.handing_over = False  # asked to end as soon as somebody else could go on
        self.queued = True  # known to the scheduler
        self.kept_back: list[EngineOutput] = []  # by a fault script
        self._hung_since_s: float | None = None
        self.generated = 0
        self.last = 0
        self.tokens = list(work.tokens)
        self.limit = min(sampling.max_tokens, setup.limits.max_model_len - len(work.tokens))
        self.min_tokens = sampling.min_tokens
        self.stop_ids = frozenset(sampling.stop_token_ids) | (
            frozenset() if sampling.ignore_eos else frozenset(setup.vocabulary.eos)
        )
        self.stream = TokenStream(setup.vocabulary, sampling, work.tokens, MEAN_ANSWER)
        self._vocabulary = setup.vocabulary
        self._drawn_from = 0
        self._block_size = setup.limits.block_size
        self.wants_logprobs = sampling.logprobs is not None
        self._scripted = _script(work, setup)
        keys = TokenKeys(self.tokens, setup.limits.block_size, work.cache_salt)
        self.sequence = Sequence(
            work.request_id,
            len(work.tokens),
            keys,
            priority=rank(work.priority, work.precedence),
            external=pull.computed_tokens if pull is not None else 0,
        )
        self.sequence.loner = bool(struck)
        self.sequence.skip_cache = sampling.prompt_logprobs is not None

    def sample(self) -> FinishReason | None:
        """Draws one token into `last`; returns why the answer ends with it, if it does."""
        self._drawn_from = self.stream.state
        token = self._scripted[self.generated] if self.generated < len(self._scripted) else self.stream.next()
        self.last = token
        self.tokens.append(token)
        self.generated += 1
        if token in self.stop_ids and self.generated >= self.min_tokens:
            return FinishReason.STOP
        if self.generated >= self.limit:
            return FinishReason.LENGTH
        # Where a KV block ends a reader would need one more than there is here: then it is the next token.
        if self.handing_over and (len(self.tokens) - 1) % self._block_size:
            return FinishReason.HANDED_OVER
        return None

    @property
    def may_be_cut(self) -> bool:
        """Whether it runs, has begun, and would not end by itself by the token at which it can be handed over."""
        if self.sequence.status is not Status.RUNNING or not self.generated:
            return False
        tokens = self.generated + (1 if len(self.tokens) % self._block_size else 2)
        return tokens < self.limit

    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Of the token sampled last."""
        wanted = self.work.sampling.logprobs
        return () if wanted is None else (token_logprobs(self._drawn_from, self.last, wanted, self._vocabulary),)

    def hung_enough(self, for_s: float | None) -> bool:
        """Whether a scripted hang that began when this was first asked is over."""
        now = time.monotonic()
        if self._hung_since_s is None:
            self._hung_since_s = now
        return for_s is not None and now - self._hung_since_s >= for_s

    def prompt_logprobs(self) -> PromptLogprobs:
        wanted = self.work.sampling.prompt_logprobs
        return () if wanted is None else prompt_logprobs(self.work.tokens, wanted, self._vocabulary)


def _script(work: Work, setup: Setup) -> tuple[int, ...]:
    """The whole answer, when a grammar decides it."""
    wanted = work.sampling.structured
    if wanted is None:
        return ()
    try:
        return setup.vocabulary.encode(minimal_json(wanted)) + setup.vocabulary.eos[:1]
    except UnsupportedSchemaError as error:
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, f"structured output: {error}")) from None


def check(work: Work, setup: Setup, pull: Ticket | None) -> None:
    """Raises FaultError for what this engine will never run."""
    limits, prompt = setup.limits, len(work.tokens)
    if not prompt:
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, "the prompt is empty"))
    if prompt >= limits.max_model_len:
        raise FaultError(
            Fault(
                FaultKind.CONTEXT_LENGTH,
                f"{prompt} prompt tokens leave no room in a window of {limits.max_model_len}",
                {"prompt_tokens": prompt, "max_model_len": limits.max_model_len},
            )
        )
    bad = next((token for token in work.tokens if not 0 <= token < setup.vocabulary.size), None)
    if bad is not None:
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, f"token {bad} is not in the vocabulary"))
    needed = -(-(prompt + 1) // limits.block_size)
    if needed > limits.blocks:
        raise FaultError(
            Fault(
                FaultKind.KV_CAPACITY,
                f"the prompt needs {needed} KV blocks of {limits.blocks}",
                {"blocks_needed": needed, "blocks_total": limits.blocks},
            )
        )
    if pull is not None:
        _check_pull(work, pull, setup)


def _check_pull(work: Work, ticket: Ticket, setup: Setup) -> None:
    size = setup.limits.block_size
    if work.sampling.prompt_logprobs is not None:
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, "prompt logprobs come from the prefill leg (B-07)"))
    if ticket.block_size_tokens != size:
        raise FaultError(
            Fault(FaultKind.PAIR_INCOMPATIBLE, f"blocks of {ticket.block_size_tokens} tokens, here {size}")
        )
    fault = objection(HeldTicket(ticket, 0.0), len(work.tokens), 0.0)
    if fault is not None:
        raise FaultError(fault)
