"""What a step takes, as learnt from windows."""

from math import inf

import pytest

from gateway.policy.roles import StepLaw
from proto.worker import StepTotals

TRUE = StepLaw(weights_s=0.010, token_s=4e-5, context_s=2e-8)


def decoding(answers: int, context: int, steps: int = 50) -> StepTotals:
    return StepTotals(steps, TRUE.step_s(answers, context) * steps, answers * steps, context * steps)


def computing(tokens: int, answers: int = 0, context: int = 0, steps: int = 10) -> StepTotals:
    seconds = TRUE.step_s(answers, context, tokens) * steps
    return StepTotals(0, 0.0, 0, 0, steps, seconds, tokens * steps, answers * steps, context * steps)


def test_it_finds_the_three_constants_from_what_it_sees() -> None:
    law = StepLaw()
    for round_ in range(300):
        law.learn(decoding(8, 10_000 + 1000 * (round_ % 20)))
        law.learn(computing(1024))
    assert law.weights_s == pytest.approx(TRUE.weights_s, rel=0.02)
    assert law.token_s == pytest.approx(TRUE.token_s, rel=0.02)
    assert law.context_s == pytest.approx(TRUE.context_s, rel=0.1)


def test_small_chunks_say_nothing_of_the_token() -> None:
    law = StepLaw()
    before = law.token_s
    law.learn(computing(16))
    assert law.token_s == before


def test_a_window_of_nothing_teaches_nothing() -> None:
    law = StepLaw()
    law.learn(StepTotals())
    assert law == StepLaw()


def test_a_step_fills_the_time_it_may_take() -> None:
    tokens = TRUE.fastest(0.050, 32, 50_000, 2048, 0.0)
    assert TRUE.step_s(32, 50_000, tokens - 32) == pytest.approx(0.050, rel=0.001)
    assert TRUE.fastest(0.009, 32, 0, 2048, 0.0) == 0
    assert TRUE.fastest(inf, 32, 0, 2048, 0.0) == 2048


def test_a_little_speed_is_given_for_shorter_steps() -> None:
    assert 512 <= TRUE.fastest(inf, 0, 0, 2048, 0.05) < 1024


def test_a_size_that_is_dearer_is_left_for_a_smaller_one_and_only_that_size() -> None:
    law = StepLaw(TRUE.weights_s, TRUE.token_s)
    for round_ in range(400):
        tokens = (768, 1024, 1040)[round_ % 3]
        seconds = TRUE.step_s(16, 0, tokens - 16) * (1.2 if tokens > 1024 else 1.0)
        law.learn(StepTotals(0, 0.0, 0, 0, 5, 5 * seconds, 5 * (tokens - 16), 5 * 16, 0), tokens)
    for tokens, times in ((768, 1.0), (1024, 1.0), (1040, 1.2)):
        assert law.step_s(16, 0, tokens - 16) == pytest.approx(times * TRUE.step_s(16, 0, tokens - 16), rel=0.04)
    assert law.fastest(TRUE.step_s(16, 0, 1140), 16, 0, 2048, 0.0) == 1024


def test_steps_of_different_sizes_tell_nothing_of_the_one_between() -> None:
    law = StepLaw(TRUE.weights_s, TRUE.token_s)
    law.learn(computing(1024))
    sizes = dict(law._sizes)
    slow = StepTotals(chunk_steps=2, chunk_s=0.2, chunk_tokens=2048)
    law.learn(slow, 2048)
    law.learn(slow)
    assert law._sizes == sizes
    law.learn(slow, 1024)
    assert law._sizes != sizes
