"""Estimates against what came, by model and length."""

from typing import Any

import pytest

from gateway.policy.control.buckets import Bucket, Buckets
from gateway.policy.estimate import LEVELS, Estimate, FinishedBy
from tests.gateway.policy.control.test_controller import World


def estimate() -> Estimate:
    """Its 90 % quantile is 900 tokens."""
    return Estimate((LEVELS * 1000).astype(int))


def only(buckets: Buckets) -> tuple[str, str, Bucket]:
    (row,) = buckets
    return row


@pytest.mark.parametrize(
    ("tokens", "ended", "name", "counts"),
    [
        (256, FinishedBy.STOP, "1-256", {"over_answers": 1, "over_tokens": 644}),
        (257, FinishedBy.STOP, "257-1024", {"over_answers": 1, "over_tokens": 643}),
        (900, FinishedBy.STOP, "257-1024", {}),
        (5000, FinishedBy.LENGTH, "4097-16384", {"under_answers": 1, "under_tokens": 4100}),
        (20_000, FinishedBy.CLIENT_LEFT, "16385-", {"under_answers": 1, "under_tokens": 19_100, "left_early": 1}),
        (100, FinishedBy.CLIENT_LEFT, "1-256", {"left_early": 1}),
    ],
)
def test_an_answer_counts_where_it_ended(tokens: int, ended: FinishedBy, name: str, counts: dict[str, Any]) -> None:
    buckets = Buckets()
    buckets.record("m", estimate(), tokens, ended)
    assert only(buckets) == ("m", name, Bucket(answers=1, realised_tokens=tokens, **counts))


def test_models_and_lengths_are_in_order() -> None:
    buckets = Buckets()
    for model, tokens in (("b", 20_000), ("b", 5), ("a", 2000), ("b", 300)):
        buckets.record(model, estimate(), tokens, FinishedBy.STOP)
    assert [(model, name) for model, name, _ in buckets] == [
        ("a", "1025-4096"),
        ("b", "1-256"),
        ("b", "257-1024"),
        ("b", "16385-"),
    ]


def test_the_controller_counts_every_answer() -> None:
    world = World()
    world.learn(300, count=3)
    (row,) = world.controller.snapshot({}).buckets
    assert (row.model, row.answer_tokens, row.answers, row.realised_tokens) == ("m", "257-1024", 3, 900)
