"""The learned predictor."""

import json

import numpy as np
import pytest

from gateway.policy.estimate import Features
from gateway.policy.estimate.stumps import Stumps


def rows(count: int, seed: int) -> list[tuple[Features, int]]:
    """Length follows prompt and tenant, with noise."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prompt, tenant = int(rng.integers(1, 8000)), str(rng.choice(["a", "b"]))
        middle = (400 if prompt > 3000 else 100) * (5 if tenant == "b" else 1)
        made.append((Features("m", prompt, tenant), max(1, round(middle * np.exp(0.5 * rng.standard_normal())))))
    return made


TRAINED = Stumps.train(rows(3000, 0))


def predicted(features: Features, q: float) -> int:
    found = TRAINED.predict(features)
    assert found is not None
    return found.quantile(q)


def test_it_learns_what_the_features_say() -> None:
    assert predicted(Features("m", 100, "a"), 0.5) == pytest.approx(100, rel=0.2)
    assert predicted(Features("m", 7000, "b"), 0.5) == pytest.approx(2000, rel=0.2)


def test_it_covers_as_it_claims_on_requests_it_has_not_seen() -> None:
    fresh = rows(2000, 1)
    for q in (0.5, 0.9, 0.99):
        covered = np.mean([tokens <= predicted(features, q) for features, tokens in fresh])
        assert covered == pytest.approx(q, abs=0.035)


def test_it_is_saved_and_restored_as_json() -> None:
    other = Stumps.of_document(json.loads(json.dumps(TRAINED.document())))
    features = Features("m", 100, "b", thinking_budget=50)
    assert other.place(features) == TRAINED.place(features)
    with pytest.raises(ValueError, match="nothing"):
        Stumps.of_document({"schema": "nothing"})


def test_too_few_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        Stumps.train(rows(50, 0))


def test_where_the_features_say_nothing_it_is_the_distribution_of_all() -> None:
    lengths = [100] * 500 + [1000] * 500
    np.random.default_rng(0).shuffle(lengths)
    blind = Stumps.train([(Features("m", 5), tokens) for tokens in lengths]).predict(Features("m", 5))
    assert blind is not None
    assert [blind.quantile(0.2), blind.quantile(0.8)] == pytest.approx([100, 1000], abs=2)
