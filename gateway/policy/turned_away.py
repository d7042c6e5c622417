"""Who gets no place, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.policy.rejection import RejectReason
from gateway.policy.routing import Outlook


class Why(StrEnum):
    NO_ROUTE = "no_route"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    TTFT = "ttft_unreachable"
    DECODE = "decode_overloaded"


#: What an early rejection is told as.
EARLY = {RejectReason.TTFT: Why.TTFT, RejectReason.DECODE: Why.DECODE}


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A bid that gets no place, with the numbers behind it: `waiting` others, `waited_s` seconds in line.

    `numbers` are those of an early rejection.
    """

    why: Why
    outlook: Outlook
    waiting: int
    retry_after_s: float
    waited_s: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
