"""A worker takes no more answers, and has some: which go on elsewhere now (R-26). Pure."""

from collections.abc import Iterator, Sequence

from gateway.policy.admission.move import Fare, Move, Target
from gateway.policy.admission.overrun import Action, Answer, Prices, Response, fare_of

#: Of one worker and one gateway, so many are on their way at a time: each of them stands still until its KV is there, and a
#: link that all of them share is no faster for it.
AT_ONCE = 4


def leave(
    answers: Sequence[Answer], targets: Sequence[Target], prices: Prices, most: int, *, back: bool = True
) -> Iterator[Action]:
    """One move each, `most` of them: those that would keep the worker longest go first. What ends before a move would pay, or
    finds no room, stays. `back`: they may go where they have been, and however often; where a worker is to be empty they must."""
    room = list(targets)
    for answer in sorted(answers, key=lambda one: (-one.left_s, one.request_id)):
        if most < 1:
            return
        booked = fare_of(answer, prices, room, answer.whole_blocks, been=() if back else answer.been)
        if booked is None:
            continue
        most -= 1
        room[room.index(booked.target)] = booked.target.less(answer.whole_blocks)
        yield _action(answer, booked)


def _action(answer: Answer, booked: Fare) -> Action:
    numbers = {
        "held_blocks": float(answer.held_blocks),
        "left_s": answer.left_s,
        "move_bytes": float(answer.kv_bytes),
        "move_s": booked.transfer_s,
        "recompute_tokens": float(answer.computed_tokens),
        "recompute_s": booked.recompute_s,
    }
    move = Move(answer.request_id, booked.target.worker_id, booked.by)
    return Action(Response.MOVE, (answer.request_id,), answer.held_blocks, numbers, (move,))
