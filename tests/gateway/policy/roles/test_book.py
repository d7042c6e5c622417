"""How long and how large the next step of a worker may be."""

import pytest

from gateway.policy.roles import Aims, Knobs, StepLaw
from gateway.policy.roles.book import Book
from proto.worker import StepTotals

AIMS, KNOBS = Aims(1.0, 0.05), Knobs()
LAW = StepLaw(weights_s=0.01, token_s=4e-5)


def decoding(*, with_prompts: int, of: int = 1000, backlog: int = 2000) -> Book:
    """An answer that has saved time over many short steps, some of which had prompts in them; and a prompt in hand."""
    book = Book()
    book.enter("a", 1000, 5000, handed=False)
    book.begin("a", 0.0, 5000, 0.0)
    for n in range(1, of + 1):
        prompts = n % (of // with_prompts) == 0
        step = StepTotals(chunk_steps=1, chunk_s=0.01) if prompts else StepTotals(decode_steps=1, decode_s=0.01)
        book.stepped(step, n * 0.01)
    book.queue("b", backlog, late=False)
    return book


def test_where_prompts_are_rare_what_was_saved_is_spent_on_those_in_hand() -> None:
    rare, common = decoding(with_prompts=10), decoding(with_prompts=500)
    assert common.step_s(LAW, AIMS, KNOBS) < 0.05 + 64 * 0.05
    assert rare.step_s(LAW, AIMS, KNOBS) > 2 * common.step_s(LAW, AIMS, KNOBS)


def test_the_more_is_in_hand_the_more_steps_it_is_spent_on() -> None:
    few, many = decoding(with_prompts=10), decoding(with_prompts=10, backlog=20_000)
    assert many.step_s(LAW, AIMS, KNOBS) < few.step_s(LAW, AIMS, KNOBS)


def test_a_prompt_that_comes_is_in_hand_at_once() -> None:
    book = decoding(with_prompts=10)
    before_s = book.step_s(LAW, AIMS, KNOBS)
    book.queue("c", 20_000, late=False)
    assert book.step_s(LAW, AIMS, KNOBS) < before_s


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_where_prompts_keep_coming_it_is_spent_over_as_many_tokens_as_ever(share: float) -> None:
    common = decoding(with_prompts=round(1000 * share))
    saved_s = 1000 * (KNOBS.tpot_share * 0.05 - 0.01) + 4000 * KNOBS.foresight * (KNOBS.tpot_share * 0.05 - 0.01)
    assert common.step_s(LAW, AIMS, KNOBS) == pytest.approx(KNOBS.tpot_share * 0.05 + saved_s / 64, rel=0.01)


def test_where_nobody_decodes_a_step_is_as_large_as_it_may_be_whatever_is_thought_of_its_size() -> None:
    """What is known of sizes that are not used drifts: a fleet with hardly an answer stayed with 1,536 tokens, which it took to be
    7 % faster than 2,048, where they are 1 % slower."""
    law = StepLaw(weights_s=0.01, token_s=4e-5)
    for _ in range(200):
        law.learn(StepTotals(chunk_steps=1, chunk_s=0.07, chunk_tokens=1536), 1536)
        law.learn(StepTotals(chunk_steps=1, chunk_s=0.11, chunk_tokens=2048), 2048)
    assert law.fastest(1.0, 0, 0, 2048, 0.0) == 1536
    assert Book().step_tokens(law, AIMS, KNOBS) == 2048
