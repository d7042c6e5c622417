"""Whether a worker that is away could take what no ready one ever can. Pure.

Then the fault is not the request's: it may be sent again, while what could never fit must be changed.
"""

from collections.abc import Sequence

from gateway.policy.routing import Dead, DecodeCandidate, NoRoute


def could_take(absent: Sequence[DecodeCandidate], route: NoRoute) -> bool:
    """By the numbers of `route`, which says why none of the ready ones can."""
    numbers = route.numbers
    match route.why:
        case Dead.TOO_LONG:
            return any(one.window > numbers["prompt_tokens"] for one in absent)
        case Dead.NEVER_FITS:
            longest = numbers["prompt_tokens"] + -(-numbers["growth_tokens"] // numbers["answers"])
            return any(
                one.window >= longest
                and one.slots_total >= numbers["answers"]
                and one.blocks_total >= numbers["blocks_needed"]
                for one in absent
            )
        case Dead.TOGETHER:
            blocks = numbers["blocks_total"] + sum(one.blocks_total for one in absent)
            slots = numbers["slots_total"] + sum(one.slots_total for one in absent)
            return bool(absent) and blocks >= numbers["blocks_needed"] and slots >= numbers["answers"]
    return False
