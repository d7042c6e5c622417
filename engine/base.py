"""The Engine protocol: what a worker needs of whatever computes tokens."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from proto.ticket import Ticket
from proto.work import SequenceDelta, Work
from proto.worker import PeerTransfers, Role, StepTotals, WarmResult, WorkerInfo


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who this engine works for. `epoch` is new for every start of the process."""

    worker_id: str
    epoch: str
    role: Role


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine's own figures. Counters count since it started; `blocks_used` leaves out evictable blocks."""

    blocks_total: int
    blocks_used: int
    running: int
    waiting: int
    preemptions: int
    recomputed_tokens: int
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    steps: int
    step_time_s: float
    tickets_held: int
    tickets_expired: int
    failed_notifications: int
    transfers: tuple[PeerTransfers, ...] = ()
    totals: StepTotals = field(default_factory=StepTotals)
    most_step_tokens: int = 0  # of a step without a limit; 0: `limit_step` changes nothing


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """News of one request from one step. `ticket` comes with the end of a request submitted with `hold`, or handed over."""

    request_id: str
    delta: SequenceDelta
    ticket: Ticket | None = None
    compute_s: float = 0.0


#: Everything that one engine step produced.
EngineFrame = tuple[EngineOutput, ...]


class Engine(Protocol):
    """One model on one TP group.

    Contract: every submitted request yields exactly one output whose delta has ended (finish or fault),
    unless it was aborted by `abort`, after which nothing of it is yielded. All methods are called from one
    event loop and never block it. When the engine dies, `frames` raises `EngineDeadError` and every later
    call does too.
    """

    async def start(self) -> WorkerInfo:
        """Loads the model and returns what the worker will describe.

        Engines are constructed with their `WorkerIdentity`, so that a transfer names the writer it came from.
        """
        ...

    async def stop(self) -> None:
        """Ends every process and frees everything. Calling it twice is harmless."""
        ...

    def submit(self, work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
        """Queues a request.

        hold: at the end by length keep the KV pinned under a lease and yield a ticket. One token that ends otherwise is
        HANDOFF_MISSING (B-04); several may stop by themselves, and then the answer is over and nothing is pinned.
        pull: fetch the prompt's KV from the ticket's writer before computing.
        Raises FaultError for a request the engine can tell at once it will not run.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stops a request in any phase, at a point that is safe for its KV. Unknown and ended ids are no-ops (B-32)."""
        ...

    def hand_over(self, request_id: str) -> None:
        """A request that runs shall go on elsewhere: it ends at its next token, or the one after that where a KV block ends,
        with HANDED_OVER and a ticket for its KV. One that ends by itself first ends as it would have. One that cannot be handed
        over now goes on, and an output without tokens says so (`stays`), so that nobody keeps a place for it elsewhere.
        Unknown and ended ids are no-ops; `WorkerInfo.hands_over` says whether the engine ever can.
        """
        ...

    def limit_step(self, tokens: int, chunk_tokens: int) -> None:
        """From the next step on at most so many tokens a step, and so many of one prompt; 0 of either is what the engine was
        configured for, which no limit exceeds. The newest word wins. `EngineStats.most_step_tokens` says whether it does.
        """
        ...

    async def release(self, ticket_id: str) -> bool:
        """Frees KV pinned by a ticket that nobody will read; False when there is nothing to free (B-27)."""
        ...

    def frames(self) -> AsyncIterator[EngineFrame]:
        """Yields one frame per step that produced anything. One consumer."""
        ...

    def stats(self) -> EngineStats:
        """The newest figures; cheap."""
        ...

    async def warm(self, peer: WorkerInfo) -> WarmResult:
        """Hand-shakes with a peer so that the first real pull does not pay for it, and measures the link."""
        ...


class EngineDeadError(RuntimeError):
    """The engine is gone and will not come back in this process."""
