"""Predicted TTFT is the arithmetic of steps."""

import pytest

from gateway.policy.admission.ttft import predicted_ttft_s


def ttft(prompt: int, queued: int = 0, cached: int = 0, step_s: float = 0.0, handoff_s: float = 0.0) -> float:
    return predicted_ttft_s(
        prompt, queued, cached, tokens_per_s=10_000, token_budget=2_000, step_s=step_s, handoff_s=handoff_s
    )


def test_prompt_and_queue_are_computed_one_after_the_other() -> None:
    assert ttft(1_000) == pytest.approx(0.1)
    assert ttft(1_000, queued=5_000) == pytest.approx(0.6)


def test_a_step_takes_its_least_time_however_short_it_is() -> None:
    assert ttft(10, step_s=0.05) == pytest.approx(0.05)
    assert ttft(2_010, step_s=0.05) == pytest.approx(0.2 + 0.05)
    assert ttft(2_000, queued=2_000, step_s=0.3) == pytest.approx(0.6)


def test_a_prefix_that_hits_is_not_computed_but_for_the_last_token() -> None:
    assert ttft(1_000, cached=900) == pytest.approx(0.01)
    assert ttft(1_000, cached=5_000) == pytest.approx(1e-4)


def test_the_hand_off_comes_on_top() -> None:
    assert ttft(1_000, handoff_s=0.25) == pytest.approx(0.35)


def test_a_worker_without_speed_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="speed"):
        predicted_ttft_s(10, 0, tokens_per_s=0, token_budget=2_000)
