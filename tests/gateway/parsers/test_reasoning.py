"""Reasoning: split exactly at its marks, whatever pieces the text comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parsers.reasoning import Reasoning, ReasoningMarks, ReasoningParser
from tests.examples import examples

MARKS = ReasoningMarks(ReasoningParser.THINK, "<think>", "</think>")
SHORT = ReasoningMarks(ReasoningParser.THINK, "<a>", "</a>")


def split(marks: ReasoningMarks, pieces: list[str], *, opened: bool) -> tuple[str, str]:
    reasoning = Reasoning(marks, opened=opened)
    said = [*(reasoning.push(piece) for piece in pieces), reasoning.flush()]
    return "".join(one.reasoning for one in said), "".join(one.content for one in said)


def counted(marks: ReasoningMarks, tokens: list[str], *, opened: bool) -> int:
    count = Reasoning(marks, opened=opened).tokens
    for token in tokens:
        count.push(token)
    count.flush()
    return count.count


def expected(marks: ReasoningMarks, text: str, *, opened: bool) -> tuple[str, str]:
    """By definition, from the whole text."""
    bare = text.lstrip()
    if bare.startswith(marks.start):
        text = text[: len(text) - len(bare)] + bare[len(marks.start) :]
    elif not opened:
        return "", text
    before, _, after = text.partition(marks.end)
    return before, after


pieces = st.lists(
    st.one_of(st.sampled_from(["<a>", "</a>", " ", "\n", "</", "a>", "<"]), st.text("a<>/ é", max_size=5)), max_size=9
)


@given(pieces=pieces, opened=st.booleans())
@examples(400)
def test_the_split_depends_on_the_text_alone(pieces: list[str], opened: bool) -> None:
    assert split(SHORT, pieces, opened=opened) == expected(SHORT, "".join(pieces), opened=opened)


@given(text=st.text("a<>/ ", max_size=24), opened=st.booleans())
@examples(200)
def test_a_character_at_a_time_is_split_as_the_whole(text: str, opened: bool) -> None:
    assert split(SHORT, list(text), opened=opened) == split(SHORT, [text], opened=opened)


@given(pieces=pieces, opened=st.booleans())
@examples(200)
def test_only_what_may_be_a_mark_is_withheld(pieces: list[str], opened: bool) -> None:
    reasoning, shown = Reasoning(SHORT, opened=opened), ["", ""]
    for at, piece in enumerate(pieces, start=1):
        one = reasoning.push(piece)
        shown = [shown[0] + one.reasoning, shown[1] + one.content]
        known = expected(SHORT, "".join(pieces[:at]), opened=opened)
        withheld = "".join(known)[len("".join(shown)) :]
        assert list(known) == [shown[0] + withheld * (not known[1]), shown[1] + withheld * bool(known[1])]
        bare = withheld.lstrip()
        assert any(mark.startswith(bare) and mark != bare for mark in (SHORT.start, SHORT.end))


@pytest.mark.parametrize(
    ("tokens", "opened", "reasoning", "content", "count"),
    [
        (["<think>", "a", "b", "</think>", "c"], False, "ab", "c", 2),
        (["a", "b", "</think>", "\n\n", "c"], True, "ab", "\n\nc", 2),
        (["<think>", "\n", "a", "</think>", "c"], True, "\na", "c", 2),  # the mark again, though the prompt has it
        (["a", "<", "/think", ">", "c"], True, "a", "c", 1),
        (["a", "<", "b", "</think>"], True, "a<b", "", 3),
        (["a", "</th"], True, "a</th", "", 2),  # cut short
        (["a", " b</think>c"], True, "a b", "c", 2),
        (["\n", "</think>", "c"], True, "\n", "c", 1),
        (["", "é", "</think>"], True, "é", "", 2),  # a token without text is part of a character
        (["c", "<think>", "d"], False, "", "c<think>d", 0),
        (["<thi"], False, "", "<thi", 0),
        (["<thi"], True, "<thi", "", 1),
        ([], True, "", "", 0),
        # What may be a mark again right after what was none: its token was counted as reasoning.
        (["<think>", "<", "<", "/think>"], False, "<", "", 1),
        (["a", "</", "th<", "/think>"], True, "a</th", "", 3),
        (["a", "", "</think>"], True, "a", "", 2),  # a special token that is not shown
        (["<", "", "/think>"], True, "", "", 0),
        (["<think>", "", "</think>"], False, "", "", 1),
        (["", "", "日", "", "</think>"], True, "日", "", 4),
    ],
)
def test_tokens_of_reasoning_are_counted_without_those_of_the_marks(
    tokens: list[str], opened: bool, reasoning: str, content: str, count: int
) -> None:
    assert split(MARKS, tokens, opened=opened) == (reasoning, content)
    assert counted(MARKS, tokens, opened=opened) == count


KIMI = ReasoningMarks(ReasoningParser.THINK, "◁think▷", "◁/think▷")


@pytest.mark.parametrize(
    ("tokens", "count"),
    [
        (["", "◁think", "", "▷", "a", "", "◁/think", "", "▷", "b"], 1),  # "" are bytes of the mark's characters
        (["◁think▷", "a", "", "", "é", "", "", "◁", "/think▷"], 4),
        (["◁think▷", "", "▷", "a", "", "◁/", "a"], 6),  # no mark, and cut short
    ],
)
def test_tokens_that_begin_a_mark_of_several_bytes_do_not_count(tokens: list[str], count: int) -> None:
    assert counted(KIMI, tokens, opened=False) == count


def by_definition(marks: ReasoningMarks, tokens: list[str], *, opened: bool) -> int:
    """Every token stands for the characters that it has, or for the one that comes next."""
    text, at, count = "".join(tokens), 0, 0
    reasoning, _ = expected(marks, text, opened=opened)
    bare = text.lstrip()
    begin = len(text) - len(bare) + len(marks.start) if bare.startswith(marks.start) else 0
    end = text.index(marks.end, begin) if marks.end in text[begin:] else len(text) + 1
    for token in tokens:
        mine = range(at, at + max(1, len(token)))
        between = not token and at == end  # special, because no mark here begins with a part of a character
        count += bool(reasoning or opened or begin) and (between or any(begin <= each < end for each in mine))
        at += len(token)
    return count


@given(tokens=pieces, opened=st.booleans())
@examples(400)
def test_tokens_of_reasoning_are_those_with_text_of_it(tokens: list[str], opened: bool) -> None:
    assert counted(SHORT, tokens, opened=opened) == by_definition(SHORT, tokens, opened=opened)


@pytest.mark.parametrize(
    ("prompt", "think", "deepseek_r1"),
    [
        ("<|im_start|>assistant\n", False, True),
        ("<｜Assistant｜><think>\n", True, True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False, False),  # Qwen3 with enable_thinking false
        ("<user>what is <think>?<assistant>", False, True),
        ("", False, True),
    ],
)
def test_the_end_of_the_prompt_says_where_an_answer_begins(prompt: str, think: bool, deepseek_r1: bool) -> None:
    assert ReasoningMarks(ReasoningParser.THINK, "<think>", "</think>").opened(prompt) is think
    assert ReasoningMarks(ReasoningParser.DEEPSEEK_R1, "<think>", "</think>").opened(prompt) is deepseek_r1
