"""The account of one request: how long each phase took, who served it, how it ended."""

from dataclasses import dataclass, field

from gateway.request.errors import Reason
from gateway.request.phase import Phase, check
from gateway.request.trace import Trace

#: Of an answer that moves again and again the first are remembered.
_MOST_VISITS = 64


@dataclass(eq=False, slots=True)
class Record:
    """Mutable while the request lives, then handed to the observers; compared by identity. Times are on the gateway's monotonic clock.

    Contains no prompt text, no answer text and no secrets, so it may be logged.
    """

    request_id: str
    model: str
    tenant: str
    prompt_tokens: int
    choices: int
    started_s: float
    client_id: str = ""  # the client's own X-Request-Id, to be found in its logs as well
    trace: Trace | None = None  # that the client says it is part of
    policy: str = ""
    klass: str = ""
    estimated_tokens: float = 0.0  # of all answers together, at admission
    longest_tokens: int = 0  # of one answer
    phase: Phase = Phase.RECEIVED
    entered_s: dict[Phase, float] = field(default_factory=dict)  # for the last time: a retry enters some again
    visits: list[tuple[Phase, float]] = field(
        default_factory=list
    )  # in the order in which phases were entered, and when
    spent_s: dict[Phase, float] = field(default_factory=dict)  # in phases that were left, all visits together
    path: str = ""  # "remote", "local" or "colocated"
    path_reason: str = ""
    prefill_worker: str = ""
    decode_worker: str = ""
    transport: str = ""
    reserved_blocks: int = 0
    handoffs: int = 0
    retries: int = 0
    moves: int = 0  # from one decode worker to another, while it ran
    capped: int = 0  # answers that the policy ended for want of KV
    cached_tokens: int = 0
    completion_tokens: int = 0
    kv_bytes: int = 0
    prefill_queue_s: float = 0.0
    prefill_compute_s: float = 0.0  # by whichever worker computed the prompt
    transfer_s: float = 0.0
    decode_queue_s: float = 0.0
    first_token_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    reason: Reason | None = None
    failed_phase: Phase | None = None

    def enter(self, phase: Phase, now_s: float) -> None:
        """Moves to `phase`; an illegal move is a defect and raises."""
        before = self.phase
        self.phase = check(before, phase)
        began_s = self.entered_s.get(before, self.started_s)
        self.spent_s[before] = self.spent_s.get(before, 0.0) + max(0.0, now_s - began_s)
        self.entered_s[phase] = now_s
        if len(self.visits) < _MOST_VISITS or phase.final:
            self.visits.append((phase, now_s))
        if phase.final:
            self.ended_s = now_s
