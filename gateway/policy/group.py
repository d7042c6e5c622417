"""The prompts of one request, which get their places together or not at all. Pure.

What one of them had been granted while others waited would be KV that nobody uses, and two such requests could wait
for each other's for ever; and a stream that has begun would break when a later prompt is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.policy.need import Need
from gateway.policy.prefix import BlockHashes
from gateway.policy.routing import Dead, DecodeCandidate, Fleet, NoRoute, Outlook, Place, Placement, Rules, Wait


@dataclass(frozen=True, slots=True)
class Member:
    """One prompt: what it needs, and the workers that failed it or will never take it."""

    need: Need
    prefix: BlockHashes
    avoid: set[str]
    never: set[str]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What members that have a place already take of a worker."""

    blocks: int = 0
    answers: int = 0

    def plus(self, need: Need, block_size_tokens: int) -> "_Taken":
        return _Taken(self.blocks + need.likely_blocks(block_size_tokens), self.answers + need.answers)


def together(needs: Sequence[Need]) -> Need:
    """What all of them need at once; of blocks a little less than the sum, since each rounds up by itself."""
    return Need(
        sum(need.prompt_tokens for need in needs),
        sum(need.growth_tokens for need in needs),
        sum(need.answers for need in needs),
        sum(need.likely_tokens for need in needs),
        sum(need.expected_tokens for need in needs),
    )


def place_group(
    members: Sequence[Member], fleet: Callable[[BlockHashes], Fleet], rules: Rules, place: Place
) -> Outlook:
    """Each member where it would go by itself if those before it were there. The others' places are in `also`.

    NoRoute when one of them has none, or when all of them would not fit even into workers that hold nothing else.
    """
    outlook = _seat(members, fleet, rules, place)
    if isinstance(outlook, NoRoute) and outlook.why is not Dead.NEVER_FITS:
        return outlook
    numbers = _numbers(members, fleet(members[0].prefix))
    # Whatever there is room for now: workers are tried beyond the room that is known, and what never fits would be tried
    # again and again.
    if not isinstance(_seat(members, lambda prefix: emptied(fleet(prefix)), rules, place), Placement):
        alone = [place(each.need, emptied(fleet(each.prefix)), rules, each.avoid, each.never) for each in members]
        return next((each for each in alone if isinstance(each, NoRoute)), NoRoute(Dead.TOGETHER, numbers))
    if isinstance(outlook, Placement):
        return outlook
    return Wait(int(numbers["blocks_needed"]), int(numbers["blocks_free"]), int(numbers["blocks_total"]))


def _seat(members: Sequence[Member], fleet: Callable[[BlockHashes], Fleet], rules: Rules, place: Place) -> Outlook:
    taken: dict[str, _Taken] = {}
    placements: list[Placement] = []
    for each in members:
        view = _less(fleet(each.prefix), taken)
        outlook = place(each.need, view, rules, each.avoid, each.never)
        if not isinstance(outlook, Placement):
            return outlook
        size = next(one.block_size_tokens for one in view.decodes if one.worker_id == outlook.worker_id)
        taken[outlook.worker_id] = taken.get(outlook.worker_id, _Taken()).plus(each.need, size)
        placements.append(outlook)
    return replace(placements[0], also=tuple(placements[1:]))


def _less(fleet: Fleet, taken: Mapping[str, _Taken]) -> Fleet:
    def left(decode: DecodeCandidate) -> DecodeCandidate:
        if (mine := taken.get(decode.worker_id)) is None:
            return decode
        headroom = decode.headroom_blocks
        return replace(
            decode,
            blocks_free=decode.blocks_free - mine.blocks,
            headroom_blocks=None if headroom is None else headroom - mine.blocks,
            slots_total=decode.slots_total - mine.answers,
            slots_free=None if decode.slots_free is None else decode.slots_free - mine.answers,
        )

    return replace(fleet, decodes=tuple([left(decode) for decode in fleet.decodes])) if taken else fleet


def emptied(fleet: Fleet) -> Fleet:
    """The same workers without what they hold; their emergency pools are lent to what needs nearly all of them."""
    return replace(
        fleet,
        decodes=tuple(
            [
                replace(
                    one, blocks_free=one.blocks_total, headroom_blocks=None, closed=False, asked=False, slots_free=None
                )
                for one in fleet.decodes
            ]
        ),
    )


def _numbers(members: Sequence[Member], fleet: Fleet) -> dict[str, float]:
    size = max(decode.block_size_tokens for decode in fleet.decodes)
    whole = together([each.need for each in members])
    return {
        "prompts": len(members),
        "prompt_tokens": whole.prompt_tokens,
        "blocks_needed": sum(each.need.likely_blocks(size) for each in members),
        "blocks_free": sum(decode.blocks_free for decode in fleet.decodes),
        "blocks_total": sum(decode.blocks_total for decode in fleet.decodes),
        "answers": whole.answers,
        "slots_total": sum(decode.slots_total for decode in fleet.decodes),
    }
