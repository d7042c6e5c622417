"""What a waiting prompt says about itself."""

from dataclasses import dataclass
from enum import IntEnum
from math import inf


class Band(IntEnum):
    """Priority. A lower number goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """The facts by which a prompt is put in line. Times are moments on the caller's clock.

    `deadline_s` is when waiting ends (the queue's own limit or the client's, whichever is earlier), `promise_s` when
    the first token was promised, and `first_token_s` how long that takes from the moment of its turn on.
    """

    tenant: str = ""
    klass: str = ""
    band: Band = Band.NORMAL
    prompt_tokens: int = 0
    expected_output_tokens: float = 0.0
    deadline_s: float = inf
    promise_s: float = inf
    first_token_s: float = 0.0

    @property
    def latest_start_s(self) -> float:
        """A turn after this moment comes too late for the promise."""
        return self.promise_s - self.first_token_s
