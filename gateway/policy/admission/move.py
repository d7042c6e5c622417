"""Whether a running answer should go on at another worker, and by which way its KV gets there (R-26, R-27). Pure.

An answer stands still while it moves. So it must have long enough to live, and it goes the quicker of the two ways. To even
workers out it goes only where everything that it may still come to hold finds room. One whose worker runs out of KV is computed
anew if it stays: for it room for what it holds is enough (an emergency).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

#: So often an answer is sent on at most. As it never goes to where it has been, no two workers send it back and forth.
MOST_MOVES = 4
#: An answer that leaves a worker without KV is taken where everybody, it included, can gain so many tokens. Less, and that worker
#: is the next that is full; much more, and it is computed anew though there was room.
EMERGENCY_STEPS = 64


def emergency_growth(answers: int, block_size_tokens: int) -> int:
    """Blocks that a worker with so many answers keeps for them when it takes in one more in an emergency."""
    return -(-(answers + 1) * EMERGENCY_STEPS // block_size_tokens)


class By(StrEnum):
    TRANSFER = "transfer"  # the KV is read from where it is
    RECOMPUTE = "recompute"  # prompt and answer so far are computed anew


@dataclass(frozen=True, slots=True)
class Move:
    request_id: str
    worker_id: str
    by: By


@dataclass(frozen=True, slots=True)
class Target:
    """Another worker: its room for those that come, and how fast it reads from the one that is left.

    `free_blocks`: what the growth of everything promised there leaves; in an emergency what is free now, less
    `emergency_growth`.
    """

    worker_id: str
    free_blocks: float
    bytes_per_s: float

    def less(self, blocks: int) -> "Target":
        return replace(self, free_blocks=self.free_blocks - blocks)


@dataclass(frozen=True, slots=True)
class Fare:
    """Both ways as they were weighed, and the one to take. `pause_s` comes on top of either."""

    target: Target
    by: By
    transfer_s: float
    recompute_s: float
    pause_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.pause_s + (self.transfer_s if self.by is By.TRANSFER else self.recompute_s)


def fare(
    blocks: int,
    kv_bytes: int,
    recompute_s: float,
    most_s: float,
    ways: Collection[By],
    targets: Sequence[Target],
    *,
    been: Collection[str] = (),
    pause_s: float = 0.0,
) -> Fare | None:
    """To the target with the most room; None where there is none, or it would take longer than `most_s`.

    `blocks`: what it needs there. `been`: workers that it has left.
    """
    if not ways or len(been) >= MOST_MOVES:
        return None
    fitting = [target for target in targets if target.free_blocks >= blocks and target.worker_id not in been]
    if not fitting:
        return None
    target = max(fitting, key=lambda one: (one.free_blocks, one.bytes_per_s))
    transfer_s = kv_bytes / target.bytes_per_s if target.bytes_per_s else float("inf")
    costs = {By.TRANSFER: transfer_s, By.RECOMPUTE: recompute_s}
    by = min((way for way in By if way in ways), key=costs.__getitem__)
    booked = Fare(target, by, transfer_s, recompute_s, pause_s)
    return booked if booked.seconds <= most_s else None
