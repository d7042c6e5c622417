"""What is known of a live target before the first request of the load."""

from typing import Any

import pytest

from loadgen.arms.url import UrlArm
from loadgen.client.conditions import gpus_of
from loadgen.client.target import Target
from loadgen.scripted.script import steady
from loadgen.scripted.server import Behaviour, serving

TP2 = {"status": "ready", "tp": 2, "pp": 1}
STATUS: dict[str, Any] = {"workers": [TP2, TP2, {"status": "gone", "tp": 8, "pp": 1}]}


@pytest.mark.parametrize(
    ("stated", "status", "gpus", "told"),
    [
        (None, STATUS, 4.0, "by the target's status"),
        (None, None, 1.0, "1 is assumed (--gpus)"),
        (3.0, STATUS, 3.0, ""),
    ],
    ids=["told", "not told", "stated"],
)
async def test_gpus_are_those_stated_else_those_that_the_target_tells_else_one(
    stated: float | None, status: dict[str, Any] | None, gpus: float, told: str
) -> None:
    async with serving(Behaviour(steady(0, 0), status=status)) as url, UrlArm("a", stated, Target(url)) as arm:
        assert arm.gpus == gpus
        assert told in " ".join(arm._assumed())


@pytest.mark.parametrize("other", [None, [], {}, {"workers": 3}, {"workers": [{"tp": 1}]}, {"workers": []}])
def test_a_document_of_another_kind_tells_of_no_gpus(other: Any) -> None:
    assert gpus_of(other) == 0
