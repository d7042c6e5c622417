"""What an engine in virtual time is asked for, and what it tells."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import StrEnum

from engine.simulated.gaps import Gaps


@dataclass(frozen=True, slots=True)
class Job:
    """One request as lengths. `shared` are keys of the prompt's first full blocks, equal for equal content.

    `hold` keeps the KV after the end until `release`. `external` tokens have to be fetched first: the engine
    says when it has room (LOADING), and the caller says when they have arrived (`loaded`).
    """

    request_id: str
    prompt_tokens: int
    output_tokens: int
    shared: Items[int] = ()
    priority: int = 0
    hold: bool = False
    external: int = 0


class Kind(StrEnum):
    STARTED = "started"
    LOADING = "loading"
    FIRST_TOKEN = "first_token"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    HELD = "held"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Event:
    """`blocks` is what a load has to move, or what a held request keeps; `cached` the tokens found in the own cache;
    `tokens` prompt and answer of a request that FAILED or is HELD; `gaps` those between the tokens of one that FINISHED or is
    HELD, where kept."""

    kind: Kind
    request_id: str
    time_s: float
    blocks: int = 0
    cached: int = 0
    tokens: int = 0
    gaps: Gaps | None = None
