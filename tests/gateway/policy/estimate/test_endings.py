"""Where answers under way are told, a drift is that more or fewer of them end than should (R-10)."""

from collections.abc import Callable

import numpy as np
import pytest

from gateway.policy.estimate import Change, Drift, Features, FinishedBy, Knobs, LengthModel
from gateway.policy.estimate.knobs import DriftKnobs
from tests.gateway.policy.estimate.draws import CHAT, Clock, feed, lognormal, model

OTHER = Features(model="m", prompt_tokens=100, tenant="b", task="chat")
STEP_S, TOKENS_PER_S, TELL_S = 1.0, 25.0, 5.0

Draw = Callable[[float, np.random.Generator], list[tuple[Features, int]]]


class Service:
    """Answers come as `draw` says and gain tokens; the model is told of those that go on, as a gateway tells it."""

    def __init__(self, lengths: LengthModel, clock: Clock, seed: int = 0) -> None:
        self._lengths, self._clock = lengths, clock
        self._random = np.random.default_rng(seed)
        self._under_way: list[tuple[Features, int, float]] = []
        self._told_s = 0.0

    def run(self, draw: Draw, seconds: float) -> list[tuple[float, Drift]]:
        """The drifts, each with the time since this began."""
        found, start_s = [], self._clock.now_s
        while (now_s := self._clock.now_s) < start_s + seconds:
            self._under_way += [(features, tokens, now_s) for features, tokens in draw(STEP_S, self._random)]
            going = []
            for features, tokens, began_s in self._under_way:
                if (now_s - began_s) * TOKENS_PER_S < tokens:
                    going.append((features, tokens, began_s))
                    continue
                drifts = self._lengths.observe(features, tokens, FinishedBy.STOP)
                found += [(drift.at_s - start_s, drift) for drift in drifts]
            self._under_way = going
            if now_s - self._told_s >= TELL_S:
                self._told_s = now_s
                generated = [(each, max(1, int((now_s - began_s) * TOKENS_PER_S))) for each, _, began_s in going]
                self._lengths.running(generated)
            self._clock.now_s += STEP_S
        return found


def poisson(rate: float, features: Features, median: float, sigma: float = 0.9) -> Draw:
    def draw(seconds: float, random: np.random.Generator) -> list[tuple[Features, int]]:
        count = random.poisson(rate * seconds)
        return [(features, max(1, round(median * np.exp(sigma * random.standard_normal())))) for _ in range(count)]

    return draw


def both(one: Draw, other: Draw) -> Draw:
    return lambda seconds, random: one(seconds, random) + other(seconds, random)


def served(
    knobs: Knobs | None = None, draw: Draw | None = None, features: tuple[Features, ...] = (CHAT,)
) -> tuple[LengthModel, Service]:
    """A service that has gone on for a while as it was."""
    clock = Clock()
    lengths = model(knobs, clock)
    for each in features:
        feed(lengths, lognormal(750, 0.9, 2_000), each)
    service = Service(lengths, clock)
    service.run(draw or poisson(3.0, CHAT, 750), 300.0)
    return lengths, service


def longest_seen(found: list[tuple[float, Drift]]) -> float:
    return min(at_s for at_s, drift in found if drift.change is Change.LONGER)


def test_four_times_longer_is_seen_before_half_of_the_new_median_has_passed() -> None:
    lengths, service = served()
    found = service.run(poisson(3.0, CHAT, 3_000), 60.0)
    assert longest_seen(found) < 3_000 / TOKENS_PER_S / 2
    assert lengths.estimate(CHAT).quantile(0.5) > 1_800


def test_four_times_shorter_is_seen_too() -> None:
    lengths, service = served()
    found = service.run(poisson(3.0, CHAT, 190), 60.0)
    assert found[0][1].change is Change.SHORTER
    assert lengths.estimate(CHAT).quantile(0.5) < 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_answers_that_end_as_they_should_are_no_drift_though_the_first_to_end_are_short(seed: int) -> None:
    """A gateway that was restarted with what it knew forgot it within a minute, as if answers had become shorter."""
    clock = Clock()
    lengths = model(clock=clock)
    feed(lengths, lognormal(750, 0.9, 2_000))
    assert Service(lengths, clock, seed).run(poisson(3.0, CHAT, 750), 1_000.0) == []


@pytest.mark.slow
def test_a_class_whose_parent_has_changed_needs_less_to_follow() -> None:
    """Of many buckets each sees few answers; the class above them sees all, and would alone change nothing in them."""
    buckets = tuple(Features("m", round(80 * 1.5**step), "a", "chat") for step in range(8))

    def anyone(median: float) -> Draw:
        def draw(seconds: float, random: np.random.Generator) -> list[tuple[Features, int]]:
            count = random.poisson(8.0 * seconds)
            return [
                (buckets[random.integers(len(buckets))], max(1, round(median * np.exp(0.9 * random.standard_normal()))))
                for _ in range(count)
            ]

        return draw

    lengths, service = served(draw=anyone(750), features=buckets)
    service.run(anyone(3_000), 100.0)
    medians = [lengths.estimate(each).quantile(0.5) for each in buckets]
    assert min(medians) > 1_500


@pytest.mark.slow
def test_a_sibling_that_has_not_changed_keeps_what_it_knows() -> None:
    lengths, service = served(draw=both(poisson(2.0, CHAT, 750), poisson(2.0, OTHER, 750)), features=(CHAT, OTHER))
    found = service.run(both(poisson(2.0, CHAT, 3_500), poisson(2.0, OTHER, 750)), 120.0)
    assert ("m", "chat", "a") in {drift.key for _, drift in found}
    assert ("m", "chat", "b") not in {drift.key for _, drift in found}
    assert lengths.estimate(OTHER).quantile(0.5) == pytest.approx(750, rel=0.3)


def test_a_threshold_that_is_never_passed_leaves_it_alone() -> None:
    lengths, service = served(Knobs(drift=DriftKnobs(threshold=1e9)))
    assert service.run(poisson(3.0, CHAT, 3_000), 60.0) == []
    assert lengths.estimate(CHAT).quantile(0.5) < 1_500
