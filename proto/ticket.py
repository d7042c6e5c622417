"""The ticket: a prefill worker's promise that it holds the KV of some tokens for a while."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticket:
    """Names pinned KV on one worker in one epoch. Opaque to clients; never built from client input (B-60).

    `age_s` is how much of `lease_s` had passed when the holder was sent the ticket, so that no two
    machines' clocks are ever compared. `engine_params` belongs to the engine alone.
    """

    ticket_id: str
    worker_id: str
    epoch: str
    engine_params: bytes
    computed_tokens: int
    blocks: int
    block_size_tokens: int
    kv_bytes: int
    lease_s: float
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReleaseTicket:
    """Give back what a prefill left behind. After a Prefill call without a reply, name the work instead of the ticket."""

    epoch: str
    ticket_id: str = ""
    request_id: str = ""
