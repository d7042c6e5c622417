"""A worker is full and another has room: which answer goes on there, so that they come closer (R-26). Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.policy.admission.move import Fare, Move, Target
from gateway.policy.admission.overrun import Action, Answer, Prices, Response, fare_of


@dataclass(frozen=True, slots=True)
class Balance:
    """From `above` on a worker counts as full, by the share of its KV in use; another must be emptier by `spread`."""

    above: float = 0.85
    spread: float = 0.3


@dataclass(frozen=True, slots=True)
class Standing:
    """A decode worker as it stands."""

    worker_id: str
    blocks_total: int
    held_blocks: int

    @property
    def share(self) -> float:
        return self.held_blocks / max(1, self.blocks_total)

    def with_more(self, blocks: int) -> float:
        return (self.held_blocks + blocks) / max(1, self.blocks_total)


def full_ones(workers: Sequence[Standing], balance: Balance) -> Iterator[tuple[Standing, list[Standing]]]:
    """Full workers, the fullest first, each with those that are emptier by the spread. Who has nothing that may leave does not
    keep the next one from being put right."""
    for full in sorted(workers, key=lambda one: -one.share):
        emptier = [one for one in workers if full.share - one.share > balance.spread]
        if full.share < balance.above or not emptier:
            return
        yield full, emptier


def even_out(
    full: Standing, emptier: Sequence[Standing], targets: Sequence[Target], answers: Sequence[Answer], prices: Prices
) -> Action:
    """One answer, the cheapest for each block that the full worker is rid of. It never makes the other the fuller one, so that
    no answer is ever sent back and forth. `targets`: of the emptier ones, those that can be moved to."""
    shares = {one.worker_id: one for one in emptier}
    best: tuple[float, Answer, Fare] | None = None
    for answer in answers:
        suiting = [one for one in targets if _narrows(full, shares.get(one.worker_id), answer)]
        blocks = answer.whole_blocks
        booked = fare_of(answer, prices, suiting, blocks)
        if booked is not None and (best is None or booked.seconds / max(1, blocks) < best[0]):
            best = booked.seconds / max(1, blocks), answer, booked
    if best is None:
        return Action(Response.NONE, numbers={"full_share": full.share})
    _, answer, booked = best
    move = Move(answer.request_id, booked.target.worker_id, booked.by)
    numbers = _numbers(full, shares[move.worker_id], answer, booked)
    return Action(Response.MOVE, (answer.request_id,), answer.held_blocks, numbers, (move,))


def _narrows(full: Standing, other: Standing | None, answer: Answer) -> bool:
    return other is not None and other.with_more(answer.held_blocks) <= full.with_more(-answer.held_blocks)


def _numbers(full: Standing, other: Standing, answer: Answer, booked: Fare) -> Mapping[str, float]:
    return {
        "full_share": full.share,
        "other_share": other.share,
        "held_blocks": float(answer.held_blocks),
        "move_bytes": float(answer.kv_bytes),
        "move_s": booked.transfer_s,
        "recompute_tokens": float(answer.computed_tokens),
        "recompute_s": booked.recompute_s,
    }
