"""What can go wrong on a worker, as a closed list."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    """Why a worker could not do what it was asked. The gateway decides the status code."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"
    KV_CAPACITY = "kv_capacity"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    WRONG_ROLE = "wrong_role"
    RESERVATION_UNKNOWN = "reservation_unknown"
    TICKET_EXPIRED = "ticket_expired"
    TICKET_STALE = "ticket_stale"
    TICKET_BOUNDARY = "ticket_boundary"
    KV_LOAD_FAILED = "kv_load_failed"
    HANDOFF_MISSING = "handoff_missing"
    ENGINE_DEAD = "engine_dead"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    PAIR_INCOMPATIBLE = "pair_incompatible"


#: Faults that the request caused: they never count against a worker's health (B-44).
REQUEST_FAULTS = frozenset(
    {FaultKind.INVALID_REQUEST, FaultKind.CONTEXT_LENGTH, FaultKind.KV_CAPACITY, FaultKind.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A typed failure: `kind` for programs, `message` for people, `numbers` behind the decision."""

    kind: FaultKind
    message: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class FaultError(Exception):
    """Raised where a fault has to travel as an exception."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}")
        self.fault = fault
