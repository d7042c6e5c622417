"""Who of the work that waits for an engine goes first, beside its priority."""

from enum import IntEnum


class Precedence(IntEnum):
    """Among work of one priority. Set by gateways, from nothing that a client sends; it counts until the engine has let the
    work in."""

    BEGUN = -1  # before all others: its client has read the beginning of the answer
    ORDINARY = 0
    LATE = 1  # after all others: it will miss its limit anyway


def rank(priority: int, precedence: Precedence) -> int:
    """Both as the one number that engines order by, smaller ones first."""
    return len(Precedence) * priority + precedence


def let_in(ranked: int) -> int:
    """The rank of work that an engine has let in: who is given up for want of KV is decided as if nobody had gone first."""
    places = len(Precedence)
    return (ranked + places // 2) // places * places
