"""When a plan is due: after a drift, after lengths have shifted, and not again too soon (R-63)."""

from typing import Any

import numpy as np
import pytest

from loadgen.demand import Demand
from loadgen.plan.watching import Rhythm, Watching, shift
from loadgen.workload.observed import Observed

RHYTHM = Rhythm(interval_s=900.0, every_s=300.0, least=100)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def event(number: int, age_s: float, since: int, change: str = "shorter") -> dict[str, Any]:
    return {"number": number, "age_s": age_s, "requests_since": since, "change": change, "class": ["m", "-"]}


def account(count: int, *newest: dict[str, Any], requests: int = 500) -> dict[str, Any]:
    return {"requests": requests, "drifts": {"count": count, "newest": list(newest)}}


def observed(prompt: float = 1000.0, output: float = 200.0, count: int = 400, seed: int = 0) -> Observed:
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.lognormal(np.log(prompt), 0.8, count), rng.lognormal(np.log(output), 0.8, count)
    rows = [
        Demand(int(p) + 1, int(o) + 1, at_s=float(i)) for i, (p, o) in enumerate(zip(prompts, outputs, strict=True))
    ]
    return Observed(tuple(rows), float(count))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watching(clock: Clock) -> Watching:
    """One that knows what the traffic was like when it began."""
    made = Watching(RHYTHM, clock)
    assert made.heard(account(3)) is not None  # asks for the rows
    assert made.compared(observed()) is None
    return made


def test_events_before_the_watch_are_no_news(watching: Watching) -> None:
    assert watching.heard(account(3, event(3, 50.0, 400))) is None


def test_a_drift_is_planned_for_once_enough_of_the_new_traffic_has_come(watching: Watching) -> None:
    assert watching.heard(account(4, event(4, 10.0, 99))) is None
    cause = watching.heard(account(4, event(4, 20.0, 100)))
    assert cause is not None
    assert (cause.text, cause.within_s) == ("answers are shorter: m · -", 20.0)


def test_one_change_is_told_at_several_levels_and_planned_for_once(clock: Clock, watching: Watching) -> None:
    events = event(4, 60.0, 300, "longer"), event(5, 30.0, 150)
    cause = watching.heard(account(5, *events))
    assert cause is not None
    assert (cause.text, cause.within_s) == ("answers are longer: m · -, and 1 more", 30.0)
    watching.planned(observed(), account(5, *events))
    clock.now_s = 1000.0
    again = watching.heard(account(5, *events))
    assert again is not None
    assert again.text == ""  # a look as ever, not for those events
    assert watching.compared(observed(seed=1)) is None


def test_events_that_never_end_do_not_put_a_plan_off_for_ever(watching: Watching) -> None:
    assert watching.heard(account(5, event(4, 899.0, 5000), event(5, 1.0, 4))) is None
    cause = watching.heard(account(5, event(4, 900.0, 5000), event(5, 2.0, 8)))
    assert cause is not None
    assert cause.within_s == 900.0


def test_at_most_one_plan_in_an_interval(clock: Clock, watching: Watching) -> None:
    watching.planned(observed(), account(4))
    clock.now_s = 899.0
    assert watching.heard(account(5, event(5, 100.0, 500))) is None
    clock.now_s = 900.0
    assert watching.heard(account(5, event(5, 101.0, 505))) is not None


def test_an_event_during_a_plan_is_news_after_it(clock: Clock, watching: Watching) -> None:
    watching.planned(observed(), account(4))  # as the account was before the plan began
    clock.now_s = 1000.0
    cause = watching.heard(account(5, event(4, 990.0, 5000), event(5, 950.0, 4000)))
    assert cause is not None
    assert "more" not in cause.text


def test_a_gateway_that_counts_from_the_start_again_is_listened_to(watching: Watching) -> None:
    assert watching.heard(account(1, event(1, 30.0, 200))) is not None


def test_prompts_that_change_alone_are_found_by_looking(clock: Clock, watching: Watching) -> None:
    clock.now_s = 299.0
    assert watching.heard(account(3)) is None
    clock.now_s = 300.0
    cause = watching.heard(account(3))
    assert cause is not None
    assert (cause.text, cause.within_s) == ("", 300.0)
    found = watching.compared(observed(prompt=2500.0))
    assert found is not None
    assert found.text.startswith("prompts are distributed otherwise")
    assert watching.heard(account(3)) is None  # looked at just now


def test_a_look_at_too_few_says_nothing(clock: Clock, watching: Watching) -> None:
    clock.now_s = 300.0
    assert watching.heard(account(3)) is not None
    assert watching.compared(observed(prompt=9000.0, count=99)) is None


def test_slow_traffic_is_compared_once_enough_of_it_has_come(clock: Clock, watching: Watching) -> None:
    """Below --least requests in --every seconds nothing was ever compared: of 0.3 requests a second only drifts were heard."""
    for now_s, count in ((300.0, 40), (600.0, 80)):
        clock.now_s = now_s
        cause = watching.heard(account(3))
        assert cause is not None
        assert cause.within_s == now_s
        assert watching.compared(observed(prompt=2500.0, count=count)) is None
    clock.now_s = 900.0
    cause = watching.heard(account(3))
    assert cause is not None
    assert cause.within_s == 900.0
    found = watching.compared(observed(prompt=2500.0, count=120))
    assert found is not None
    assert found.text.startswith("prompts are distributed otherwise")
    clock.now_s = 1200.0
    cause = watching.heard(account(3))
    assert cause is not None
    assert cause.within_s == 300.0


def test_the_same_distribution_is_no_shift_and_a_small_one_neither() -> None:
    for seed in range(20):
        assert shift(observed(seed=100 + seed), observed(seed=200 + seed)) == ""
    assert shift(observed(count=5000), observed(output=220.0, count=5000, seed=1)) == ""
    assert "answers" in shift(observed(), observed(output=60.0, seed=1))
