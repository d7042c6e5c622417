"""When a plan is due: after a drift, after lengths or the rate have changed, and not again too soon (R-63)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadgen.demand import Demand
from loadgen.plan.watching import Cause, Rhythm, Watching
from loadgen.workload.observed import Observed

RHYTHM = Rhythm(interval_s=900.0, every_s=300.0, least=100)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def event(number: int, age_s: float, since: int, change: str = "shorter", gateway: str = "a") -> dict[str, Any]:
    told = {"number": number, "age_s": age_s, "requests_since": since, "change": change, "class": ["m", "-"]}
    return told | {"gateway": gateway}


def account(count: int, *newest: dict[str, Any], requests: int = 500, **others: int) -> dict[str, Any]:
    """`count` of the events of gateway "a", and of `others`."""
    counts = {"a": count, **others}
    return {
        "requests": requests,
        "drifts": {"count": sum(counts.values()), "counts": counts, "newest": list(newest)},
    }


def observed(
    prompt: float = 1000.0, output: float = 200.0, count: int = 400, seed: int = 0, rate: float = 1.0
) -> Observed:
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.lognormal(np.log(prompt), 0.8, count), rng.lognormal(np.log(output), 0.8, count)
    rows = [
        Demand(int(p) + 1, int(o) + 1, at_s=(i + 0.5) / rate)
        for i, (p, o) in enumerate(zip(prompts, outputs, strict=True))
    ]
    return Observed(tuple(rows), count / rate)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watching(clock: Clock) -> Watching:
    """One that knows what the traffic was like when it began."""
    made = Watching(RHYTHM, clock)
    cause = made.heard(account(3))
    assert cause == Cause()  # asks for the rows
    assert made.looked(cause, observed()) is None
    return made


def test_events_before_the_watch_are_no_news(watching: Watching) -> None:
    assert watching.heard(account(3, event(3, 50.0, 400))) is None


def test_a_drift_is_planned_for_once_enough_of_the_new_traffic_has_come(watching: Watching) -> None:
    assert watching.heard(account(4, event(4, 10.0, 99))) is None
    cause = watching.heard(account(4, event(4, 20.0, 100)))
    assert cause is not None
    assert (cause.drift, cause.within_s) == ("answers are shorter: m · -", 20.0)


def test_one_change_is_told_at_several_levels_and_planned_for_once(clock: Clock, watching: Watching) -> None:
    events = event(4, 60.0, 300, "longer"), event(5, 30.0, 150)
    cause = watching.heard(account(5, *events))
    assert cause is not None
    assert (cause.drift, cause.within_s) == ("answers are longer: m · -, and 1 more", 30.0)
    watching.planned(observed(), account(5, *events))
    clock.now_s = 1000.0
    again = watching.heard(account(5, *events))
    assert again is not None
    assert again.drift == ""  # a look as ever, not for those events
    assert watching.looked(again, observed(seed=1)) is None


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
    assert "more" not in cause.drift


def test_a_gateway_that_counts_from_the_start_again_is_listened_to(watching: Watching) -> None:
    assert watching.heard(account(1, event(1, 30.0, 200))) is not None


def look(watching: Watching, now: Observed) -> Cause | None:
    """As after `every_s`."""
    cause = watching.heard(account(3))
    assert cause is not None
    return watching.looked(cause, now)


def test_prompts_that_change_alone_are_found_by_looking(clock: Clock, watching: Watching) -> None:
    clock.now_s = 299.0
    assert watching.heard(account(3)) is None
    clock.now_s = 300.0
    assert watching.heard(account(3)) == Cause(within_s=300.0)
    found = look(watching, observed(prompt=2500.0))
    assert found is not None
    assert found.text.startswith("lengths: prompts are distributed otherwise (median ")
    assert found.text.endswith("; rate: no change shown (1 -> 1/s)")
    assert watching.heard(account(3)) is None  # looked at just now


def test_a_look_at_too_few_says_nothing(clock: Clock, watching: Watching) -> None:
    clock.now_s = 300.0
    assert look(watching, observed(prompt=9000.0, count=99)) is None


def test_slow_traffic_is_compared_once_enough_of_it_has_come(clock: Clock, watching: Watching) -> None:
    """Below --least requests in --every seconds nothing was ever compared: of 0.3 requests a second only drifts were heard."""
    for now_s, count in ((300.0, 40), (600.0, 80)):
        clock.now_s = now_s
        cause = watching.heard(account(3))
        assert cause is not None
        assert cause.within_s == now_s
        assert watching.looked(cause, observed(prompt=2500.0, count=count)) is None
    clock.now_s = 900.0
    cause = watching.heard(account(3))
    assert cause is not None
    assert cause.within_s == 900.0
    found = watching.looked(cause, observed(prompt=2500.0, count=120))
    assert found is not None
    assert "prompts are distributed otherwise" in found.text
    clock.now_s = 1200.0
    cause = watching.heard(account(3))
    assert cause is not None
    assert cause.within_s == 300.0


@pytest.mark.parametrize(("rate", "said"), [(2.0, "1 -> 2/s, 2 times"), (0.5, "1 -> 0.5/s, 0.5 times")])
def test_a_rate_that_changes_alone_is_planned_for_once_it_has_lasted_two_looks(
    clock: Clock, watching: Watching, rate: float, said: str
) -> None:
    """A fleet that was twice as busy was never told: only lengths were compared."""
    clock.now_s = 300.0
    assert look(watching, observed(seed=1, rate=rate)) is None
    clock.now_s = 600.0
    found = look(watching, observed(seed=2, rate=rate))
    assert found is not None
    assert found.text == f"lengths: no change shown; rate: {said}"
    assert found.document()["rate"] == {"before_ps": 1.0, "now_ps": rate, "factor": rate, "changed": True}


def test_a_rate_that_goes_up_and_down_again_is_not_planned_for(clock: Clock, watching: Watching) -> None:
    for number, rate in enumerate((2.0, 0.5, 2.0, 1.0, 2.0), 1):
        clock.now_s = 300.0 * number
        assert look(watching, observed(seed=number, rate=rate)) is None


def test_a_rate_is_held_against_that_of_the_last_plan_so_that_a_slow_rise_is_seen(
    clock: Clock, watching: Watching
) -> None:
    rates, planned = [1.1**step for step in range(1, 12)], []
    for number, rate in enumerate(rates, 1):
        clock.now_s = 900.0 * number
        now = observed(seed=number, rate=rate, count=4000)
        if look(watching, now) is not None:
            watching.planned(now, account(3))
            planned.append(number)
    assert planned == [4, 8]  # 1.33 and 1.36 times the one before are the first that last, and not 1.1 times each


def test_lengths_and_rate_that_change_together_are_both_told(clock: Clock, watching: Watching) -> None:
    clock.now_s = 300.0
    found = look(watching, observed(output=60.0, rate=3.0))
    assert found is not None
    assert "answers are distributed otherwise" in found.text
    assert found.text.endswith("rate: 1 -> 3/s, 3 times")
    watching.planned(observed(output=60.0, rate=3.0), account(3))
    clock.now_s = 1300.0
    drift = watching.heard(account(4, event(4, 100.0, 400)))
    assert drift is not None
    told = watching.looked(drift, observed(output=20.0, rate=3.1, seed=1))
    assert told is not None
    assert told.text.startswith("lengths: answers are shorter: m · -; answers are distributed otherwise")
    assert told.text.endswith("rate: no change shown (3 -> 3.1/s)")


def test_a_drift_before_anything_was_known_says_that_of_the_rate(clock: Clock) -> None:
    watching = Watching(RHYTHM, clock)
    assert watching.heard(account(0, requests=20)) is None
    cause = watching.heard(account(1, event(1, 10.0, 100), requests=99))
    assert cause is not None
    assert watching.looked(cause, observed(count=99)) is None  # fewer rows than the account had promised
    found = watching.looked(cause, observed(count=100))
    assert found is not None
    assert found.text == "lengths: answers are shorter: m · -; rate: not known from before"
    assert found.document() == {"drift": "answers are shorter: m · -", "lengths": None, "rate": None}


def test_the_first_rate_is_that_of_late_and_not_of_all_that_a_gateway_remembers(clock: Clock) -> None:
    night, day = observed(rate=0.05, count=200), observed(rate=2.0, count=800)
    rows = [*night.rows, *(replace(row, at_s=(row.at_s or 0.0) + night.window_s) for row in day.rows)]
    watching = Watching(RHYTHM, clock)
    watching.looked(Cause(), Observed(tuple(rows), night.window_s + day.window_s))
    for now_s in (300.0, 600.0):
        clock.now_s = now_s
        assert look(watching, observed(seed=3, rate=2.0)) is None


def test_what_one_gateway_tells_after_another_is_no_second_change(clock: Clock, watching: Watching) -> None:
    """Behind a load balancer each finds it for itself, and each would have led to a plan."""
    mine = event(4, 20.0, 150)
    assert watching.heard(account(4, mine, b=7)) is not None
    watching.planned(observed(), account(4, mine, b=7))
    clock.now_s = 1000.0
    late = event(8, 900.0, 3000, gateway="b")
    heard = watching.heard(account(4, mine, late, b=8))
    assert heard is not None
    assert heard.drift == ""
    assert watching.looked(heard, observed(seed=1)) is None
    other = event(9, 50.0, 200, "longer", gateway="b")
    again = event(10, 30.0, 120, gateway="b")
    assert watching.heard(account(4, mine, late, other, b=9)) == Cause("answers are longer: m · -", None, 50.0)
    once_more = watching.heard(account(4, mine, late, again, b=10))
    assert once_more is not None
    assert once_more.drift == "answers are shorter: m · -"


def test_gateways_are_counted_apart(watching: Watching) -> None:
    """Of the sum of their counts nobody could tell which of them has news, or has been started anew."""
    assert watching.heard(account(3, b=5)) is None  # b was not known before; it has no events that are told
    cause = watching.heard(account(3, event(1, 30.0, 200, gateway="b"), b=1))
    assert cause is not None
    assert cause.within_s == 30.0
