"""What more of something would be worth."""

from dataclasses import replace

import pytest

from engine.simulated.cost import load_budget
from loadgen.plan.crew import Crew
from loadgen.plan.worth import steps_up, worth
from tests.loadgen.plan.asking import APART, BRIEF, COLOCATED, PROFILE, question


@pytest.mark.slow
def test_more_of_what_does_not_bind_is_worth_nothing() -> None:
    effort = replace(BRIEF, seeds=2, judged=80, precision=0.04)
    seen: list[tuple[str, int, int]] = []
    with Crew(1) as crew:
        found = worth(COLOCATED, question(), 60.0, crew, effort, price_ph=7.0, watch=lambda *step: seen.append(step))
    rows = {w.what: w for w in found}
    assert rows["+20 % arithmetic"].share > 0.08  # prompts are computed all the time
    assert abs(rows["+10 % HBM capacity"].share) < 0.02
    assert rows["+10 % HBM capacity"].pays_up_to is None  # no gain, no price
    assert rows["2x link for KV"].share == 0  # nothing moves
    one_more = rows["+1 GPU (both worker)"]
    assert one_more.gain > rows["+20 % arithmetic"].gain
    assert one_more.shown
    assert one_more.good_ph_per_unit == pytest.approx(one_more.gain * 0.9 * 3600)
    assert one_more.pays_up_to == pytest.approx(7.0 * one_more.share)
    faster = rows["+20 % arithmetic"]
    assert faster.good_ph_per_unit == pytest.approx(faster.gain * 0.9 * 3600 / 2)  # two GPUs, each of them
    assert seen[-1] == ("margins", len(rows) + 1, len(rows) + 1)


def test_what_could_be_bought_is_counted_in_what_it_is_sold_by() -> None:
    amounts = {step.what: (step.amount, step.unit) for step in steps_up(APART, question())}
    gib = load_budget(PROFILE).gpu_bytes / 2**30
    amount, unit = amounts["+10 % HBM capacity"]
    assert amount == pytest.approx(2 * gib * 0.1)
    assert unit == "GiB"
    assert amounts["2x link for KV"] == (2, "GPU")
    assert amounts["+1 GPU (decode worker)"] == (1, "GPU")
