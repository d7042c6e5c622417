"""What a decode worker does when answers grow beyond what was promised for them. Pure.

The responses are milder and harsher (R-08): the emergency pool absorbs it, fewer are admitted, none is, and when the
pool would not be enough something that runs has to yield: an answer past its declared budget ends (`length`), one moves
to a worker with room, one is preempted, at the price that is counted first (R-24). Nothing waits for the engine to
fail an allocation and try again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.policy.admission.move import By, Fare, Move, Target, fare


class Response(StrEnum):
    NONE = "none"
    POOL = "pool"  # absorbed: admission goes on within its budget
    THROTTLE = "throttle"  # admit at a lower rate: the share is in the numbers
    QUEUE = "queue"  # admit nobody until the pool is back
    CAP = "cap"  # end answers that are past their class's token budget, with finish_reason `length`
    MOVE = "move"  # answers go on at a worker that has room
    PREEMPT = "preempt"  # take KV away, to be recomputed or loaded again


#: Decode steps from the word that an answer shall leave until its KV is free: a call to where it goes, the step that it ends
#: with, and the transfer.
LEAVING_STEPS = 16


def gained_blocks(running: int, step_s: float, look_s: float, block_size_tokens: int) -> int:
    """What so many answers gain until those would be gone that leave at the next look; nothing where no step was measured."""
    steps = look_s / step_s + LEAVING_STEPS if step_s else 0.0
    return -(-round(steps * running) // block_size_tokens)


#: Responses that take something from a running answer.
YIELDING = (Response.CAP, Response.MOVE, Response.PREEMPT)


@dataclass(frozen=True, slots=True)
class OverrunPolicy:
    """Declared per class. `order`: how a running answer of the class may be made to yield, the first that helps first.

    `cap_tokens`: output tokens after which an answer of this class may be ended when KV runs out; None: never.
    """

    order: tuple[Response, ...] = (Response.MOVE, Response.PREEMPT)
    cap_tokens: int | None = None

    def __post_init__(self) -> None:
        if any(response not in YIELDING for response in self.order):
            raise ValueError(f"of a running answer only {', '.join(YIELDING)} can be asked, not {self.order}")
        if Response.CAP in self.order and self.cap_tokens is None:
            raise ValueError("a class whose answers may be ended early declares after how many tokens")


@dataclass(frozen=True, slots=True)
class Answer:
    """A running answer. `computed_tokens`: what a preemption would have to compute again, prompt included.

    `growth_blocks` and `left_s`: what it is expected to hold on top before it ends, and until then. `ways`: how it could go on
    elsewhere; none where it must not move. `been`: workers that it has left.
    """

    request_id: str
    klass: str
    held_blocks: int
    computed_tokens: int
    generated_tokens: int
    kv_bytes: int
    growth_blocks: int = 0
    left_s: float = float("inf")
    ways: frozenset[By] = frozenset(By)
    been: frozenset[str] = frozenset()

    @property
    def whole_blocks(self) -> int:
        """All that it is expected to come to hold."""
        return self.held_blocks + self.growth_blocks


@dataclass(frozen=True, slots=True)
class Prices:
    """What yielding costs. 0 bytes/s: there is no such way. `pays`: how many times the pause that a move means the answer
    must still have to live; `pause_s`: of that, what comes on top of the bytes (calls, the last step here, the first there).

    `again`: the chance to be computed anew all the same. Engines preempt who came last, and in a full fleet that is who has moved.
    """

    prefill_tokens_per_s: float
    reload_bytes_per_s: float = 0.0  # from a host-memory tier
    pays: float = 2.0
    pause_s: float = 0.1
    again: float = 0.5

    def recompute_s(self, answer: Answer) -> float:
        return answer.computed_tokens / self.prefill_tokens_per_s


def fare_of(
    answer: Answer, prices: Prices, room: Sequence[Target], blocks: int, *, been: Collection[str] | None = None
) -> Fare | None:
    """Of a move that pays, to a target with room for `blocks`. `been`: in place of the workers that the answer has left."""
    return fare(
        blocks,
        answer.kv_bytes,
        prices.recompute_s(answer),
        answer.left_s / prices.pays,
        answer.ways,
        room,
        been=answer.been if been is None else been,
        pause_s=prices.pause_s,
    )


@dataclass(frozen=True, slots=True)
class Pressure:
    """A worker's blocks now. `growth_blocks`: what its running answers gain until those would be gone that leave at the next
    look. `targets`: where else answers could go on, with the room that there is in an emergency."""

    blocks_total: int
    pool_blocks: int
    held_blocks: int
    growth_blocks: int
    answers: Sequence[Answer] = ()
    targets: Sequence[Target] = ()


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares of the pool: beyond the first, admissions are throttled; beyond the second they stop."""

    throttle_at: float = 0.25
    queue_at: float = 0.75


@dataclass(frozen=True, slots=True)
class Action:
    """`numbers` are those behind the decision, for the log and the client: blocks, seconds, tokens, bytes."""

    response: Response
    request_ids: tuple[str, ...] = ()
    freed_blocks: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


def decide(
    pressure: Pressure,
    policies: Mapping[str, OverrunPolicy],
    prices: Prices,
    thresholds: Thresholds | None = None,
) -> Action:
    """The mildest response that keeps the worker within its blocks. A class without a policy has the default one."""
    limits = thresholds or Thresholds()
    wanted = pressure.held_blocks + pressure.growth_blocks - (pressure.blocks_total - pressure.pool_blocks)
    numbers = {
        "blocks_total": pressure.blocks_total,
        "pool_blocks": pressure.pool_blocks,
        "held_blocks": pressure.held_blocks,
        "growth_blocks": pressure.growth_blocks,
        "pool_wanted_blocks": max(0, wanted),
    }
    if wanted <= 0:
        return Action(Response.NONE, numbers=numbers)
    spent = wanted / pressure.pool_blocks if pressure.pool_blocks else float("inf")
    if spent > 1.0:
        return _make_room(pressure, policies, prices, wanted - pressure.pool_blocks, numbers)
    if spent > limits.queue_at:
        return Action(Response.QUEUE, numbers=numbers)
    if spent > limits.throttle_at:
        # From all to none as the pool goes from the first threshold to the second.
        share = (limits.queue_at - spent) / (limits.queue_at - limits.throttle_at)
        return Action(Response.THROTTLE, numbers={**numbers, "admit_share": share})
    return Action(Response.POOL, numbers=numbers)


@dataclass(frozen=True, slots=True)
class _Way:
    """`harm`: the place in the class's own order, then that in ours."""

    response: Response
    harm: tuple[int, int]
    cost_s: float
    numbers: Mapping[str, float]


def _make_room(
    pressure: Pressure,
    policies: Mapping[str, OverrunPolicy],
    prices: Prices,
    shortage: int,
    numbers: Mapping[str, float],
) -> Action:
    """Answers that yield alike: of the mildest response open to any, the cheapest for each block that it frees."""
    default, room = OverrunPolicy(), list(pressure.targets)
    free = -shortage
    ways = [
        (answer, _way(answer, policies.get(answer.klass, default), prices, room, free)) for answer in pressure.answers
    ]
    possible = [(answer, way) for answer, way in ways if way is not None]
    if not possible:
        return Action(Response.QUEUE, numbers={**numbers, "short_blocks": shortage})
    response = min((way.harm, way.response) for _, way in possible)[1]
    alike = [(answer, way) for answer, way in possible if way.response is response]
    alike.sort(key=lambda entry: (entry[1].cost_s / max(1, _spared(response, entry[0])), -entry[0].generated_tokens))
    chosen: list[tuple[Answer, _Way]] = []
    moves: list[Move] = []
    for answer, way in alike:
        if free >= 0:
            break
        if response is Response.MOVE:
            if (booked := _fare(answer, prices, _better_off(room, free, answer))) is None:
                continue  # the room has gone to those before it
            room[room.index(booked.target)] = booked.target.less(answer.held_blocks)
            moves.append(Move(answer.request_id, booked.target.worker_id, booked.by))
        chosen.append((answer, way))
        free += answer.held_blocks
    freed = sum(answer.held_blocks for answer, _ in chosen)
    totals: dict[str, float] = {"short_blocks": shortage, "cost_s": sum(way.cost_s for _, way in chosen)}
    for _, way in chosen:
        for name, value in way.numbers.items():
            totals[name] = totals.get(name, 0.0) + value
    names = tuple(answer.request_id for answer, _ in chosen)
    return Action(response, names, freed, {**numbers, **totals}, tuple(moves))


def _spared(response: Response, answer: Answer) -> int:
    """Blocks that the worker is rid of: one that leaves takes its growth along, one that is preempted comes back."""
    return answer.whole_blocks if response is Response.MOVE else answer.held_blocks


def _better_off(room: Sequence[Target], free: int, answer: Answer) -> list[Target]:
    """Those that have no less room with the answer than its worker has without it: else the next look would see it come back,
    or another one in its place."""
    return [one for one in room if one.free_blocks - answer.held_blocks >= free + answer.held_blocks]


def _fare(answer: Answer, prices: Prices, room: Sequence[Target]) -> Fare | None:
    """What it holds must fit, and no more: it is computed anew if it stays. An engine that hands nothing over is left to itself: it
    preempts the youngest, and that is less to compute."""
    return fare_of(answer, prices, room, answer.held_blocks) if By.TRANSFER in answer.ways else None


def _way(answer: Answer, policy: OverrunPolicy, prices: Prices, room: Sequence[Target], free: int) -> _Way | None:
    """The first way of the class's order that is open to this answer; what the others would cost is told with it."""
    recompute_s = prices.recompute_s(answer)
    reload_s = answer.kv_bytes / prices.reload_bytes_per_s if prices.reload_bytes_per_s else float("inf")
    booked = _fare(answer, prices, _better_off(room, free, answer)) if Response.MOVE in policy.order else None
    priced = {"recompute_tokens": float(answer.computed_tokens), "recompute_s": recompute_s}
    if prices.reload_bytes_per_s:
        priced |= {"reload_bytes": float(answer.kv_bytes), "reload_s": reload_s}
    if booked is not None:
        priced |= {"move_bytes": float(answer.kv_bytes), "move_s": booked.transfer_s}
    for place, response in enumerate(policy.order):
        harm = place, YIELDING.index(response)
        match response:
            case Response.CAP if policy.cap_tokens is not None and answer.generated_tokens >= policy.cap_tokens:
                return _Way(response, harm, 0.0, priced)
            case Response.MOVE if booked is not None:
                return _Way(response, harm, booked.seconds + prices.again * recompute_s, priced)
            case Response.PREEMPT:
                return _Way(response, harm, min(recompute_s, reload_s), priced)
    return None
