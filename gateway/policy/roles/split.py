"""How many workers should lean to prefill: the split that could carry the largest multiple of what is coming now."""

from dataclasses import dataclass
from math import sqrt

from gateway.policy.roles.book import handed_aim_s
from gateway.policy.roles.demand import Load
from gateway.policy.roles.knobs import Aims, Knobs
from gateway.policy.roles.law import StepLaw

_HALVINGS = 20
#: Beyond this multiple one split is as good as another.
_MOST = 64.0


@dataclass(frozen=True, slots=True)
class Room:
    """Of one worker: its KV, and how many sequences it runs at once."""

    kv_tokens: float
    sequences: float


@dataclass(frozen=True, slots=True)
class Groups:
    """`leaning` workers compute prompts alone, `decoding` ones decode and compute what prompts are left."""

    leaning: int
    decoding: int
    room: Room


def carries(load: Load, law: StepLaw, groups: Groups, aims: Aims, knobs: Knobs) -> float:
    """The largest multiple of `load` that the groups can serve within the aims, by means: nothing queues."""
    if not fits(load, 1e-6, law, groups, aims, knobs):
        return 0.0
    low, high = 0.0, _MOST
    if fits(load, high, law, groups, aims, knobs):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(load, middle, law, groups, aims, knobs) else (low, middle)
    return low


def fits(load: Load, times: float, law: StepLaw, groups: Groups, aims: Aims, knobs: Knobs) -> bool:
    """Whether `times` the load can be served.

    A decoding worker whose steps take T s has T × tokens per s answers at a time; prompts in the same steps make them
    longer. T follows from the law of steps, and must keep the aim. There must be KV for those answers, and room in the batch.
    """
    aside = groups.leaning / law.token_s
    left = max(0.0, times * load.prompt_tokens_per_s - aside)
    if not groups.decoding:
        return left == 0 and load.tokens_per_s == 0
    tokens = times * load.tokens_per_s / groups.decoding
    free = 1 - law.context_s * tokens * load.context_tokens
    busy = law.token_s * (tokens + left / groups.decoding)
    if free <= busy:
        return False
    step_s = law.weights_s / sqrt(free * free - busy * busy)
    answers, room = tokens * step_s, groups.room
    aim_s = handed_aim_s(load.haste if groups.leaning else 0.0, aims, knobs)
    fit = answers * load.context_tokens <= knobs.kv_share * room.kv_tokens and answers <= room.sequences
    return step_s <= aim_s and fit


def best(
    load: Load,
    law: StepLaw,
    fluid: int,
    prefill: int,
    decode: int,
    room: Room,
    aims: Aims,
    knobs: Knobs,
    now: int,
) -> int:
    """How many of the `fluid` workers should lean, beside dedicated ones.

    `now` lean already: another number must carry more by `knobs.gain`, so that noise does not move workers to and fro. Nor
    is KV moved for less: nobody leans where that carries nearly as much, by half of the gain where some lean already.
    """
    carried = {
        lean: carries(load, law, Groups(prefill + lean, decode + fluid - lean, room), aims, knobs)
        for lean in range(fluid + 1 if decode else fluid)
    }
    choice = max(carried, key=lambda lean: (carried[lean], -lean))
    if carried[choice] < carried[0] * (1 + (knobs.gain / 2 if now else knobs.gain)):
        return 0
    if now in carried and carried[choice] < carried[now] * (1 + knobs.gain):
        return now
    return choice
