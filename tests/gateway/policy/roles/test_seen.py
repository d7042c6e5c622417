"""Steps read off two states of a worker."""

from dataclasses import replace

import pytest

from gateway.policy.roles import StepLaw, Steps
from gateway.policy.roles.seen import Seen, computed_in, decoded_between

BEFORE = Seen("e", 1, 10.0, 100, 5000, 400, 4, 8000)
LAW = StepLaw(weights_s=0.02, token_s=1e-4)


AFTER = replace(BEFORE, number=2, at_s=10.5, steps=120, generated_tokens=480)


def test_a_window_of_decode_steps_is_what_it_says() -> None:
    assert decoded_between(BEFORE, AFTER, LAW, 2048) == Steps(20, 0.5, 80, 160_000)


def test_prompts_are_taken_off_by_what_is_known_of_them() -> None:
    steps = decoded_between(BEFORE, replace(AFTER, computed_tokens=5000 + 2000), LAW, 2048)
    assert steps.decode_steps == 19
    assert steps.decode_s == pytest.approx(0.5 - LAW.step_s(4, 8000, 2000))


@pytest.mark.parametrize(
    "tells_nothing",
    [
        replace(AFTER, running=0),
        replace(AFTER, steps=104),
        replace(AFTER, computed_tokens=5000 + 10 * 2048),
        replace(AFTER, computed_tokens=5000 + 8 * 2048),  # longer than the window, if the law is right
        replace(AFTER, generated_tokens=400),
        replace(AFTER, epoch="f"),
    ],
)
def test_a_window_that_may_hold_a_pause_or_is_full_of_prompts_tells_nothing(tells_nothing: Seen) -> None:
    assert decoded_between(BEFORE, tells_nothing, LAW, 2048) == Steps()
    assert decoded_between(replace(BEFORE, running=0), tells_nothing, LAW, 2048) == Steps()


def test_the_law_is_found_from_states_and_prompts_alone() -> None:
    truth = StepLaw(weights_s=0.012, token_s=6e-5, context_s=4e-8)
    learnt, seen, at_s = StepLaw(), replace(BEFORE, at_s=0.0), 0.0
    for n in range(200):
        context, chunks = 20_000 + 4_000 * (n % 5), n % 3
        step_s, chunk_s = truth.step_s(8, context), truth.step_s(8, context, 1000)
        at_s += 20 * step_s + chunks * chunk_s
        then = Seen("e", n + 2, at_s, seen.steps + 20 + chunks, seen.computed_tokens + 1000 * chunks, 0, 8, context)
        then = replace(then, generated_tokens=seen.generated_tokens + 8 * (20 + chunks))
        learnt.learn(decoded_between(replace(seen, context_tokens=context), then, learnt, 1000))
        if chunks:
            learnt.learn(computed_in(1000 / chunk_s, 1000, then, 1000))
        seen = then
    assert learnt.step_s(8, 28_000) == pytest.approx(truth.step_s(8, 28_000), rel=0.03)
    assert learnt.step_s(8, 28_000, 1000) == pytest.approx(truth.step_s(8, 28_000, 1000), rel=0.03)
