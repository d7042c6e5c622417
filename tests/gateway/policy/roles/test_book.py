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


def with_a_prompt(*, held: float, prompt_tokens: int = 600, answers: int = 100, of_sequences: bool = False) -> Book:
    """Answers that take so much of the worker's room, and a prompt in hand."""
    book = Book(steps=1)
    for at in range(answers):
        book.enter(str(at), 1000, 5000, handed=False)
        book.begin(str(at), 0.0, 5000, 0.0)
    if of_sequences:
        book.sequences = answers / held
    else:
        book.kv_tokens = max(1.0, book.context_tokens) / (held * KNOBS.kv_share)
    book.queue("prompt", prompt_tokens, late=False)
    return book


def chunk(book: Book) -> int:
    return book.step_tokens(LAW, AIMS, KNOBS) - book.answers


@pytest.mark.parametrize("of_sequences", [False, True])
def test_the_shorter_the_room_the_more_evenly_prompts_are_spread_over_the_steps(of_sequences: bool) -> None:
    """KV that answers keep for longer is KV that the next prompts wait for: two steps with half of the prompts each are over sooner
    than a long one and a bare one. A fleet whose room was short had 12 points fewer good requests with chunks as large as answers allow."""
    none, some, much = (chunk(with_a_prompt(held=held, of_sequences=of_sequences)) for held in (0.01, 0.2, 1.0))
    assert none == chunk(with_a_prompt(held=1e-9)) == with_a_prompt(held=0.01).most_chunk_tokens(LAW, AIMS, KNOBS)
    assert none > some >= much


def test_what_is_wanted_is_computed_in_the_time_that_it_may_take() -> None:
    book = with_a_prompt(held=1.0, prompt_tokens=4000)
    wanted = chunk(book)
    within_s = KNOBS.ease_share * AIMS.ttft_s
    assert wanted / LAW.step_s(book.answers, book.reading_tokens, wanted) >= 4000 / within_s
    less = wanted - 128
    assert less / LAW.step_s(book.answers, book.reading_tokens, less) < 4000 / within_s


def test_a_backlog_that_takes_longer_gets_all_that_answers_allow() -> None:
    book = with_a_prompt(held=1.0, prompt_tokens=100_000)
    assert chunk(book) == book.most_chunk_tokens(LAW, AIMS, KNOBS)


def test_even_the_smallest_step_has_the_least_chunk() -> None:
    """Just below a whole tile there is next to nothing left of it for prompts."""
    assert chunk(with_a_prompt(held=1.0, prompt_tokens=1, answers=127)) == KNOBS.smallest_chunk_tokens
    assert chunk(with_a_prompt(held=1.0, prompt_tokens=1, answers=4)) == 128 - 4


def test_where_prompts_are_spread_answers_on_their_way_have_their_tokens_too() -> None:
    book = with_a_prompt(held=1.0, prompt_tokens=1)
    for at in range(200):
        book.enter(f"handed {at}", 0.0, 5000, handed=True)
    assert book.step_tokens(LAW, AIMS, KNOBS) >= 100 + 200 + KNOBS.smallest_chunk_tokens


def test_where_nobody_decodes_prompts_are_not_spread_whatever_room_those_that_come_will_take() -> None:
    book = with_a_prompt(held=1.0, answers=0)
    book.kv_tokens = 1000.0
    book.enter("comes", 1000.0, 5000, handed=False)
    assert book.held(KNOBS) > 1
    assert book.step_tokens(LAW, AIMS, KNOBS) == KNOBS.largest_step_tokens


def test_when_a_prompt_would_be_computed_is_told_by_the_steps_that_there_may_be() -> None:
    """More prompts make steps longer, up to those; so it is by them that one is too late."""
    firsts = {with_a_prompt(held=held).first_token_s(1000, LAW, AIMS, KNOBS) for held in (0.01, 1.0)}
    assert len(firsts) == 1


def test_room_that_is_more_than_taken_asks_for_no_smaller_steps_than_that_which_is_all_taken() -> None:
    assert chunk(with_a_prompt(held=3.0)) == chunk(with_a_prompt(held=1.0))


def test_prompts_in_hand_make_a_long_answers_mean_step_hardly_longer() -> None:
    """The step that an answer would see was that with a whole chunk in it, so that workers with prompts in hand were shunned and
    others got more answers than they had room for."""
    book = with_a_prompt(held=0.5, prompt_tokens=1500)
    bare_s = LAW.step_s(book.promised + 1, book.context_tokens + 1000)
    (long_s, _), (short_s, alone_s) = (book.steps_s(1000, 500, LAW, AIMS, KNOBS, haste) for haste in (1e-4, 1.0))
    assert bare_s < long_s < 1.001 * bare_s
    full = min(2000, book.most_chunk_tokens(LAW, AIMS, KNOBS))
    assert short_s == LAW.step_s(book.promised + 1, book.context_tokens + 1000, full)
    assert alone_s == LAW.step_s(book.promised + 1, book.context_tokens + 1000, min(1500, full))


@pytest.mark.parametrize("held", [0.01, 1.0])
def test_a_prompt_of_which_more_is_left_than_was_thought_gets_all_that_answers_allow(held: float) -> None:
    """It was believed to be cached; or what others had computed anew was counted off it, or prompts of another gateway. It had
    steps with the least chunk until its end."""
    book = with_a_prompt(held=held)
    book.stepped(StepTotals(chunk_steps=1, chunk_s=0.1, chunk_tokens=600), 0.1)
    assert book.backlog
    assert not book.backlog.tokens
    assert chunk(book) == book.most_chunk_tokens(LAW, AIMS, KNOBS)
