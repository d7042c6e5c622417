"""The fairness scenes: who is judged, and by what."""

from dataclasses import replace

import pytest

from benchmarks.admission.begun import BEGUN
from benchmarks.admission.fairness import OTHERS, Scene, alone_s, figures
from loadgen.result import Ending, Result

ONE = Result(0, 0.0, 0.0, 10.0, Ending.COMPLETED, planned_prompt_tokens=1150, output_tokens=100)


def test_what_is_spent_is_the_budget_of_the_tenant_who_fares_worst() -> None:
    """Of twenty answers of one tenant two are slow: twice what 5 % allow. The other tenant's are quick."""
    alone = alone_s(ONE)
    quick = [replace(ONE, index=n, end_s=2 * alone) for n in range(38)]
    slow = [replace(ONE, index=38 + n, end_s=6 * alone) for n in range(2)]
    tenants = {one.index: OTHERS[one.index % 2 if one.index < 36 else 0] for one in [*quick, *slow]}
    found = figures([*quick, *slow], tenants)
    assert found.slow_spent == pytest.approx(2 / 22 / 0.05)
    assert found.incomplete_spent == 0.0
    assert found.slowdown == pytest.approx((38 * 2 + 2 * 6) / 40)


def test_whoever_is_turned_away_counts_against_completion_and_not_against_slowdown() -> None:
    refused = replace(ONE, index=1, ending=Ending.REJECTED, output_tokens=0)
    found = figures([ONE, refused], {0: "a", 1: "a"})
    assert found.completed == 0.5
    assert found.incomplete_spent == pytest.approx(10.0)
    assert found.slow_spent == 0.0


@pytest.mark.slow
def test_traffic_is_in_order_under_its_names_and_the_flood_is_short() -> None:
    scene = Scene("", "flood", {"flood": 0.01, "other": 0.1}, (), short=True)
    planned = scene.traffic(1)
    at_s = [one.at_s for one in planned.requests]
    assert at_s == sorted(at_s)
    assert [one.index for one in planned.requests] == list(range(len(at_s)))
    fresh = [one.demand for one in planned.requests if one.demand.klass != BEGUN]
    assert {one.tenant for one in fresh} == set(scene.shares)
    assert {one.output_tokens for one in fresh if one.tenant == "flood"} == {200}
