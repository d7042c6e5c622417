"""What became of one request, as the client saw it. Times are seconds since the start of the run."""

from array import array
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from engine.simulated.gaps import Gaps
from loadgen.buckets import bucket_of

Floats = NDArray[np.float64]


#: `tokens_from` of an answer whose first and last token alone have times; of the gaps between all it is known how many are
#: how long, where it completed.
SIMULATED = "simulated"


class Ending(StrEnum):
    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    #: The client's patience ran out: counted with the timed-out, and stated apart.
    ABANDONED = "abandoned"
    #: The plan of the run ended it (a planned leave, Ctrl-C): says nothing about the target and is not judged.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Result:
    """One request. `chunk_s` and `chunk_tokens` are aligned: when content came, and how many tokens came with it.

    `output_tokens` is the target's own count where it gave one. `tokens_from` says how the tokens of a chunk are
    known: "continuous" (the target counts in every chunk), "chunks" (one token each adds up to the target's
    count), "spread" (a guess by text length, because the target gives only a total) or "simulated" (only the first and
    the last token have times; `gaps` has those between tokens, in no order). `line_s`: of a simulated one, how long it
    stood in the gateway's line, beyond the call that asks a worker for KV.
    """

    index: int
    intended_s: float
    sent_s: float
    end_s: float
    ending: Ending
    reason: str = ""
    status: int = 0
    first_s: float | None = None
    planned_prompt_tokens: int = 0
    planned_output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    chunk_s: "array[float]" = field(default_factory=lambda: array("d"))
    chunk_tokens: "array[int]" = field(default_factory=lambda: array("L"))
    tokens_from: str = ""
    gaps: Gaps | None = None
    finish: str = ""
    tenant: str = ""
    klass: str = ""
    session: str = ""
    turn: int = 0
    stages_s: tuple[tuple[str, float], ...] = ()
    line_s: float = 0.0
    worker: str = ""
    path: str = ""

    @property
    def completed(self) -> bool:
        return self.ending is Ending.COMPLETED

    @property
    def ttft_s(self) -> float | None:
        """Intended send to first content; None when nothing came."""
        return None if self.first_s is None else self.first_s - self.intended_s

    @property
    def e2e_s(self) -> float:
        return self.end_s - self.intended_s

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (output tokens - 1); does not apply to an output of one token."""
        if self.first_s is None or self.output_tokens < 2:
            return None
        return (self.end_s - self.first_s) / (self.output_tokens - 1)

    @property
    def send_lag_s(self) -> float:
        return self.sent_s - self.intended_s

    @property
    def bucket(self) -> str:
        """By realised length when the answer completed, else by the planned one."""
        return bucket_of(self.output_tokens if self.completed else self.planned_output_tokens)

    def token_gaps_s(self) -> Floats:
        """Time between successive tokens as received: tokens of one chunk come together, so their gap is 0. A simulated
        answer's in order of length."""
        if self.tokens_from == SIMULATED:
            return np.empty(0) if self.gaps is None else self.gaps.each_s()
        if not self.chunk_s:
            return np.empty(0)
        counts = np.frombuffer(self.chunk_tokens, dtype=np.dtype("L")).astype(np.int64)
        gaps = np.zeros(int(counts.sum()))
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        times = np.frombuffer(self.chunk_s, dtype=np.float64)
        gaps[starts[1:]] = np.diff(times)
        return gaps[1:]

    def chunk_gaps_s(self) -> Floats:
        """Time between successive chunks that carry content; a simulated answer comes token by token."""
        if self.tokens_from == SIMULATED:
            return self.token_gaps_s()
        if not self.chunk_s:
            return np.empty(0)
        return np.diff(np.frombuffer(self.chunk_s, dtype=np.float64))
