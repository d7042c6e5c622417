"""Settings that make no sense are refused; what any sequence of answers must keep."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.estimate import Features, FinishedBy, Knobs
from gateway.policy.estimate.knobs import DriftKnobs
from tests.examples import examples
from tests.gateway.policy.estimate.draws import Clock, model


@pytest.mark.parametrize(
    "wrong",
    [
        {"accuracy": 0},
        {"longest_tokens": 1},
        {"half_life_observations": 0},
        {"half_life_s": -1},
        {"shrink_observations": 0},
        {"max_classes": 2},
        {"prompt_edges": (5, 5)},
        {"target_quantile": 1},
        {"headroom_max": 0.5},
        {"reasoning_share": 1.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|range"):
        Knobs(**wrong)


def test_drift_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="drift"):
        DriftKnobs(slack=0)


answers = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 100_000),
    st.integers(0, 300_000),
    st.sampled_from(FinishedBy),
    st.floats(0, 1e5),
)


@examples(40)
@given(st.lists(answers, max_size=60))
def test_whatever_comes_every_table_is_a_distribution_and_classes_are_nested(
    sequence: list[tuple[str, int, int, FinishedBy, float]],
) -> None:
    clock = Clock()
    lengths = model(Knobs(max_classes=12, drift=DriftKnobs(threshold=2, after_observations=2)), clock)
    for tenant, prompt, tokens, by, wait_s in sequence:
        clock.now_s += wait_s
        features = Features("m", prompt, tenant)
        lengths.observe(features, tokens, by)
        estimate = lengths.estimate(features, 4096)
        assert (np.diff(estimate.lengths) >= 0).all()
        assert 0 < estimate.mean <= 4096
        assert 1 <= lengths.headroom(features) <= 8
        keys = {each.key for each in lengths.classes()}
        assert len(keys) <= 12
        assert all(key[:-1] in keys for key in keys if key)
