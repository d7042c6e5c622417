"""Whether a running answer should go on at another worker, and by which way its KV gets there (R-26, R-27). Pure.

An answer stands still while it moves. So it must have long enough to live, it goes the quicker of the two ways, and it goes only
where everything that it may still come to hold finds room.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


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
    """Another worker: what the growth of everything promised there leaves, and how fast it reads from the one that is left."""

    worker_id: str
    free_blocks: float
    bytes_per_s: float

    def less(self, blocks: int) -> "Target":
        return replace(self, free_blocks=self.free_blocks - blocks)


@dataclass(frozen=True, slots=True)
class Fare:
    """Both ways as they were weighed, and the one to take."""

    target: Target
    by: By
    transfer_s: float
    recompute_s: float

    @property
    def seconds(self) -> float:
        return self.transfer_s if self.by is By.TRANSFER else self.recompute_s


def fare(
    blocks: int, kv_bytes: int, recompute_s: float, most_s: float, ways: Collection[By], targets: Sequence[Target]
) -> Fare | None:
    """To the target with the most room; None where there is none, or it would take longer than `most_s`.

    `blocks`: what it holds and is expected to hold there.
    """
    fitting = [target for target in targets if target.free_blocks >= blocks]
    if not fitting or not ways:
        return None
    target = max(fitting, key=lambda one: (one.free_blocks, one.bytes_per_s))
    transfer_s = kv_bytes / target.bytes_per_s if target.bytes_per_s else float("inf")
    costs = {By.TRANSFER: transfer_s, By.RECOMPUTE: recompute_s}
    by = min((way for way in By if way in ways), key=costs.__getitem__)
    return Fare(target, by, transfer_s, recompute_s) if costs[by] <= most_s else None
