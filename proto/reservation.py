"""Reservations of KV on a decode worker, granted by the worker alone."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ReserveRequest:
    """`growth_tokens`: what all answers together are declared or assumed to add.

    `lengths`: how long one answer may get, in tokens at the quantile levels of `gateway.policy.estimate`; with it the
    worker decides by the chance of overrunning, and without it by `growth_tokens`. `arrival_s`: when the KV is expected.
    `lengths_of`: the gateway's own number of the class that `lengths` belong to; the newest count for all of its answers.
    0: none.
    `generated_tokens`: of the prompt, so many are an answer's own, which goes on here: `lengths` and `limit_tokens` are of
    the whole answer. `emergency`: it runs at a worker that is about to run out of KV, and is computed anew if it stays: room
    for what it holds is enough, whatever is promised to others. Only the gateway's policy says so, never a client.
    `moves`: an answer under way asks, out of line. If it is refused it goes on where it is, or stands in line and asks as others do:
    nobody waits for this one.
    """

    gateway_id: str
    request_id: str
    prompt_tokens: int
    growth_tokens: int
    ttl_s: float
    sequences: int = 1
    lengths: tuple[int, ...] = ()
    limit_tokens: int = 0  # no answer is longer; 0: not told
    arrival_s: float = 0.0
    lengths_of: int = 0
    generated_tokens: int = 0
    emergency: bool = False
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """`ttl_s` is what the worker grants, which may be less than was asked for."""

    reservation_id: str
    blocks: int
    ttl_s: float


@dataclass(frozen=True, slots=True)
class RenewReservation:
    """The time to live of an unused reservation begins anew."""

    reservation_id: str
    gateway_id: str


@dataclass(frozen=True, slots=True)
class ReleaseReservation:
    """Give back a reservation; after a Reserve call without a reply, name the request instead."""

    reservation_id: str = ""
    gateway_id: str = ""
    request_id: str = ""


class RefusalReason(StrEnum):
    NEVER_FITS = "never_fits"
    KV_BUSY = "kv_busy"
    SLOTS_BUSY = "slots_busy"
    DRAINING = "draining"
    WRONG_ROLE = "wrong_role"
    ENGINE_DEAD = "engine_dead"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker would not reserve, with the numbers behind it.

    The last four only for requests with an estimate: the peak within the error budget, its limit, the chance of
    exceeding that, and the decode steps until then.
    """

    reason: RefusalReason
    blocks_needed: int
    blocks_total: int
    blocks_used: int
    blocks_reserved: int
    slots_total: int
    slots_used: int
    peak_blocks: float = 0.0
    limit_blocks: float = 0.0
    risk: float = 0.0
    peak_step: int = 0
