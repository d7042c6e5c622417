"""What the rate alone asks for: more GPUs, fewer, or as many (R-63)."""

from math import inf
from typing import Any

import pytest

from loadgen.measure.interval import Interval
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.load import Load
from loadgen.plan.revision import Figure, Revision
from proto.worker import Role
from tests.loadgen.plan.asking import PROFILE
from tests.loadgen.plan.test_revision import NEW, OLD, planned, row

EIGHT = Candidate((Part(Role.BOTH, 4, Engine(PROFILE, tp=2)),))


def load(rate_ps: float, held: float = 8.0, **other: Any) -> Load:
    figure = Figure(EIGHT, 0.9, held, Interval(0.9 * held, 1.1 * held))
    return Load(rate_ps, 0.1, figure, figure, advised=False, **other)


@pytest.mark.parametrize(
    ("rate_ps", "wanted", "said"),
    [
        (16.0, 18, "More is needed: about 18 GPUs (18 to 20) would keep 10% free, where it has 8."),
        (7.5, 10, "It is near its limit: about 10 GPUs (8 to 10) would keep 10% free, where it has 8."),
        (6.0, 8, "The number of GPUs fits."),
        (3.0, 4, "Less would do: about 4 GPUs (4 to 6) would keep 20% free, where it has 8."),
        (0.001, 2, "Less would do: about 2 GPUs would keep 20% free, where it has 8."),
    ],
)
def test_a_rate_asks_for_gpus_in_whole_engines(rate_ps: float, wanted: int, said: str) -> None:
    found = load(rate_ps)
    assert (found.wanted, found.verdict) == (wanted, said)
    assert found.document()["gpus_wanted"] == wanted


def test_one_gpu_is_no_gpus() -> None:
    replicas = Candidate((Part(Role.BOTH, 8, Engine(PROFILE)),))
    figure = Figure(replicas, 0.9, 8.0, Interval(-inf, inf))
    assert Load(0.5, 0.1, figure, figure, advised=False).verdict.startswith("Less would do: about 1 GPU would keep")


def test_a_fleet_that_was_made_smaller_does_not_ask_for_more_at_the_same_rate() -> None:
    for rate_ps in [0.25 * step for step in range(1, 60)]:
        wanted = load(rate_ps).wanted
        shrunk = Candidate((Part(Role.BOTH, wanted // 2, Engine(PROFILE, tp=2)),))
        figure = Figure(shrunk, 0.9, float(wanted), Interval(-inf, inf))
        assert Load(rate_ps, 0.1, figure, figure, advised=False).wanted == wanted


def test_both_layouts_are_told_and_the_one_that_goes_on_decides() -> None:
    ahead = Revision.of(planned(row(NEW, 10.0), row(OLD, 8.0, 0.2, 0.1, 0.3)), 0.05)
    said = Load.of(9.0, 0.1, ahead).lines()
    assert said == [
        "load: 9 requests/s, 112% of what the running layout holds, 90% of what the new one holds",
        "The number of GPUs fits.",
    ]
    unsure = Revision.of(planned(row(NEW, 10.0), row(OLD, 8.0, 0.2, -0.1, 0.5)), 0.05)
    assert Load.of(9.0, 0.1, unsure).lines()[1].startswith("More is needed: about 3 GPUs")
    best = Revision.of(planned(row(OLD, 10.0), row(NEW, 9.0, 0.1, 0.05, 0.15)), 0.05)
    assert Load.of(5.0, 0.1, best).lines()[0] == "load: 5 requests/s, 50% of what the running layout holds"
    failed = Revision.of(planned(row(NEW, 10.0)), 0.05)
    assert Load.of(5.0, 0.1, failed).lines()[0] == "load: 5 requests/s, 50% of what the new one holds"
    assert Load.of(5.0, 0.1, failed).document()["share_of_now"] is None
