"""Drift events: in time, naming the class, and seldom without cause (R-10)."""

import numpy as np
import pytest

from gateway.policy.estimate import Change, Features, FinishedBy, Knobs
from gateway.policy.estimate.drift import Detector
from gateway.policy.estimate.knobs import DriftKnobs
from tests.gateway.policy.estimate.draws import CHAT, family, feed, lognormal, model

KNOBS = DriftKnobs()
LEAF = ("m", "chat", "a", "prompt≤128")


def test_switching_from_azure_conversations_to_reasoning_is_an_event_within_30_answers() -> None:
    lengths = model()
    assert feed(lengths, family("azure-conv", 2000)) == []
    found = feed(lengths, family("natural-reasoning", 200))
    number, drift = found[0]
    assert number <= 30
    assert drift.change is Change.LONGER
    assert LEAF in {drift.key for _, drift in found}


def test_four_times_longer_is_an_event_within_40_answers_and_the_estimate_follows() -> None:
    lengths = model()
    feed(lengths, lognormal(500, 1, 3000))
    found = feed(lengths, lognormal(2000, 1, 200, seed=1))
    assert min(number for number, drift in found if drift.key == LEAF) <= 40
    assert lengths.estimate(CHAT).quantile(0.5) == pytest.approx(2000, rel=0.3)


def test_without_drift_detection_it_would_follow_far_slower() -> None:

    deaf = model(Knobs(drift=DriftKnobs(threshold=1e9)))
    feed(deaf, lognormal(500, 1, 3000))
    feed(deaf, lognormal(2000, 1, 200, seed=1))
    assert deaf.estimate(CHAT).quantile(0.5) < 1000


def test_four_times_shorter_is_an_event_too() -> None:
    lengths = model()
    feed(lengths, lognormal(2000, 1, 3000))
    found = feed(lengths, lognormal(500, 1, 200, seed=1))
    assert found[0][0] <= 40
    assert found[0][1].change is Change.SHORTER


def test_a_wider_spread_at_the_same_median_is_an_event() -> None:
    lengths = model()
    feed(lengths, lognormal(500, 0.3, 2000))
    found = feed(lengths, lognormal(500, 1.5, 300, seed=1))
    assert found[0][1].change is Change.WIDER


def test_only_the_class_that_changed_is_named_among_its_siblings() -> None:
    lengths = model()
    other = Features(model="n", prompt_tokens=100, tenant="b")
    for mine, theirs in zip(lognormal(500, 1, 1000), lognormal(500, 1, 1000, seed=2), strict=True):
        feed(lengths, [mine])
        feed(lengths, [theirs], other)
    found = []
    for mine, theirs in zip(lognormal(2500, 1, 100, seed=3), lognormal(500, 1, 100, seed=4), strict=True):
        found += feed(lengths, [mine])
        found += feed(lengths, [theirs], other)
    assert {drift.key[0] for _, drift in found} == {"m"}


def test_false_alarms_are_rarer_than_one_in_20_000_right_estimates() -> None:
    detector = Detector(KNOBS.slack, KNOBS.threshold)
    pits = np.random.default_rng(0).random(200_000).tolist()
    assert sum(detector.observe(pit) is not None for pit in pits) <= 10


def test_an_unchanging_class_raises_no_alarm_in_6000_answers() -> None:
    assert feed(model(), lognormal(500, 1, 6000)) == []


def test_cut_answers_are_no_drift() -> None:
    lengths = model()
    for number, tokens in enumerate(lognormal(2000, 0.5, 3000)):
        cap = 1000 if number % 2 else 1 << 20
        by = FinishedBy.LENGTH if tokens > cap else FinishedBy.STOP
        assert lengths.observe(CHAT, min(tokens, cap), by) == ()


def test_a_class_that_is_still_thin_is_not_judged() -> None:
    assert feed(model(), lognormal(20_000, 0.1, int(KNOBS.after_observations) - 1)) == []


def test_a_detector_comes_back_with_its_sums() -> None:
    one, other = Detector(0.5, 12), Detector(0.5, 12)
    for _ in range(8):
        one.observe(0.99)
    other.load(one.document())
    for _ in range(40):
        found = one.observe(0.99)
        assert other.observe(0.99) == found
