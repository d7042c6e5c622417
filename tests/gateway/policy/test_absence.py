"""What a worker that is away could take is not refused for good."""

import pytest

from gateway.policy.absence import could_take
from gateway.policy.routing import Dead, DecodeCandidate, NoRoute
from proto.worker import Role

AWAY = DecodeCandidate(
    "d1", Role.DECODE, window=1000, block_size_tokens=16, blocks_total=50, blocks_free=0, slots_total=4
)
ALONE = {
    "prompt_tokens": 600,
    "growth_tokens": 100,
    "blocks_needed": 44,
    "blocks_total": 40,
    "answers": 1,
    "slots_total": 4,
}
TOGETHER = {"prompts": 2, "blocks_needed": 80, "blocks_total": 40, "blocks_free": 40, "answers": 2, "slots_total": 4}


@pytest.mark.parametrize(
    ("why", "numbers", "expected"),
    [
        (Dead.NEVER_FITS, {}, True),
        (Dead.NEVER_FITS, {"blocks_needed": 51}, False),
        (Dead.NEVER_FITS, {"answers": 5}, False),
        (Dead.NEVER_FITS, {"prompt_tokens": 950}, False),
        (Dead.TOGETHER, {}, True),
        (Dead.TOGETHER, {"blocks_needed": 91}, False),
        (Dead.TOGETHER, {"answers": 9}, False),
        (Dead.TOO_LONG, {"prompt_tokens": 999}, True),
        (Dead.TOO_LONG, {"prompt_tokens": 1000}, False),
        (Dead.NO_PREFILL, {}, False),
    ],
)
def test_by_the_numbers_of_the_refusal(why: Dead, numbers: dict[str, float], expected: bool) -> None:
    route = NoRoute(why, {**(TOGETHER if why is Dead.TOGETHER else ALONE), **numbers})
    assert could_take([AWAY], route) is expected
    assert not could_take([], route)
