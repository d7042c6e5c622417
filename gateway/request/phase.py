"""The life of a request as an explicit state machine."""

from enum import StrEnum


class Phase(StrEnum):
    RECEIVED = "received"
    QUEUED = "queued"
    RESERVED = "reserved"
    PREFILLING = "prefilling"
    HANDED_OFF = "handed_off"
    DECODING = "decoding"
    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({Phase.DONE, Phase.REJECTED, Phase.FAILED, Phase.CANCELLED})

_ENDS = frozenset({Phase.FAILED, Phase.CANCELLED})

#: What may follow what. RESERVED → DECODING is the local prefill (conditional disaggregation, colocated);
#: the moves back to RESERVED are retries; PREFILLING → DONE is an answer of one token, and DONE from RESERVED or
#: HANDED_OFF one whose stop string had matched while a retry was under way. A request of several prompts shows the
#: least advanced of them, hence RESERVED → HANDED_OFF and PREFILLING → DECODING.
TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.RECEIVED: frozenset({Phase.QUEUED, Phase.REJECTED}) | _ENDS,
    Phase.QUEUED: frozenset({Phase.RESERVED, Phase.REJECTED}) | _ENDS,
    Phase.RESERVED: frozenset({Phase.PREFILLING, Phase.HANDED_OFF, Phase.DECODING, Phase.DONE, Phase.REJECTED}) | _ENDS,
    Phase.PREFILLING: frozenset({Phase.HANDED_OFF, Phase.DECODING, Phase.RESERVED, Phase.DONE, Phase.REJECTED}) | _ENDS,
    Phase.HANDED_OFF: frozenset({Phase.DECODING, Phase.RESERVED, Phase.DONE, Phase.REJECTED}) | _ENDS,
    Phase.DECODING: frozenset({Phase.DONE, Phase.RESERVED, Phase.REJECTED}) | _ENDS,
    Phase.DONE: frozenset(),
    Phase.REJECTED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.CANCELLED: frozenset(),
}


class IllegalTransitionError(RuntimeError):
    """A defect: the driver tried a move that the table does not have."""


def check(before: Phase, after: Phase) -> Phase:
    """Returns `after` when the move is legal, raises IllegalTransitionError otherwise."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransitionError(f"{before} -> {after}")
    return after
