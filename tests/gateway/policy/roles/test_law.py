"""What a step takes, as learnt from windows."""

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


def test_a_chunk_fills_the_step_it_was_asked_for() -> None:
    chunk = TRUE.chunk_within(0.050, 32, 50_000)
    assert TRUE.step_s(32, 50_000, chunk) == pytest.approx(0.050)
    assert TRUE.chunk_within(0.009, 32, 0) < 0
