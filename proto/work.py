"""Work for an engine and what comes back of it, in token ids only."""

from dataclasses import dataclass
from enum import StrEnum

from proto.fault import Fault
from proto.precedence import Precedence
from proto.sampling import Sampling
from proto.ticket import Ticket


class FinishReason(StrEnum):
    """Why the engine ended a sequence. STOP covers EOS and stop token ids; HANDED_OVER ends no answer: it goes on elsewhere."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    HANDED_OVER = "handed_over"


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence to run. `request_id` is internal and unique; a client's own id is never a key."""

    request_id: str
    tokens: tuple[int, ...]
    sampling: Sampling
    priority: int = 0
    cache_salt: str = ""
    precedence: Precedence = Precedence.ORDINARY


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One position, as parallel arrays; index 0 is the sampled token, the rest its best alternatives."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]


#: One entry a prompt token; the first prompt token has none.
PromptLogprobs = tuple[TokenLogprobs | None, ...]


@dataclass(frozen=True, slots=True)
class SequenceDelta:
    """What one engine step added to one sequence.

    `cached_tokens`, `queue_s`, `transfer_s` and `compute_s` (the first step to the first token) are meaningful on
    the first delta of a sequence; at most one of `finish` and `fault` is set, and then nothing follows.
    An engine pulls before it schedules: `queue_s` is the wait without the pull, so that the stages add up.
    `ticket`: of one that was handed over. `stays`: of one that was asked to be, and goes on here.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: FinishReason | None = None
    fault: Fault | None = None
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs = ()
    queue_s: float = 0.0
    transfer_s: float = 0.0
    compute_s: float = 0.0
    ticket: Ticket | None = None
    stays: bool = False

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.fault is not None


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """A finished prefill leg. `ticket` is None when the answer has already ended.

    A leg that gives several tokens comes in parts: each has the tokens of one step, the last alone `finish`.
    """

    tokens: tuple[int, ...]
    ticket: Ticket | None
    finish: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
    prompt_logprobs: PromptLogprobs = ()
    queue_s: float = 0.0
    compute_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Hello:
    gateway_id: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Start:
    """Run `work` under a reservation; with a ticket, pull its KV first. `sequence` is per Attach stream."""

    sequence: int
    reservation_id: str
    work: Work
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    sequence: int


@dataclass(frozen=True, slots=True)
class WriterLost:
    """The worker whose KV a sequence pulls is gone: a pull still under way ends with KV_LOAD_FAILED."""

    sequence: int
    worker_id: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """A running sequence shall go on elsewhere. One that cannot be handed over now goes on as it was, and says so (`stays`)."""

    sequence: int


Command = Hello | Start | Abort | WriterLost | HandOver

#: One engine step's news for one gateway: (sequence, delta) pairs.
Frame = tuple[tuple[int, SequenceDelta], ...]
