"""How a worker announces itself to a gateway."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`address` is where the worker's gRPC server listens; the gateway dials back."""

    worker_id: str
    epoch: str
    address: str


@dataclass(frozen=True, slots=True)
class JoinReply:
    """`reason` says why not, in words an operator can act on."""

    accepted: bool
    reason: str
    next_join_s: float
