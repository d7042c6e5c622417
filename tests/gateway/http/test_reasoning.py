"""Reasoning beside the content of chat answers: whole, streamed, counted, and given back."""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gateway.config import GatewayConfig
from gateway.request.intent import Intent
from proto.work import FinishReason
from tests.examples import examples
from tests.gateway.http.scripted import EOS, Batch, Script, deltas, events, logprobs_of, piece, says, site

THINK: dict[str, Any] = {"reasoning_parser": "think"}
R1: dict[str, Any] = {"reasoning_parser": "deepseek_r1"}
ANSWER = "<think>two and\ntwo</think>\n\nfour"


def bytewise(text: str, *, finish: FinishReason = FinishReason.STOP) -> Script:
    """A token a byte, and a piece a token."""
    return says(*text, finish=finish) if text.isascii() else pieces_of([bytes((byte,)) for byte in text.encode()])


def pieces_of(parts: list[bytes]) -> Script:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            yield (
                piece(0, (*part, *((EOS,) if last else ())), finish=FinishReason.STOP if last else None, first=at == 0),
            )

    return script


def thoughts(parsed: list[Any], choice: int = 0, field: str = "reasoning_content") -> str:
    entries = [entry for event in parsed if event for entry in event["choices"] if entry["index"] == choice]
    return "".join(entry["delta"].get(field, "") for entry in entries)


async def test_an_answer_gives_its_reasoning_under_both_names() -> None:
    async with site(says(ANSWER), settings=THINK) as at:
        body = (await at.chat()).json()
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "\n\nfour",
        "refusal": None,
        "reasoning_content": "two and\ntwo",
        "reasoning": "two and\ntwo",
    }
    assert body["usage"]["completion_tokens"] == len(ANSWER) + 1
    # A token is a byte here; a mark's last ones are those of its text.
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("two and\ntwo")}


@pytest.mark.parametrize("n", [1, 2])
async def test_b17_no_part_of_a_mark_is_streamed_and_the_role_comes_first(n: int) -> None:
    async with site(bytewise(ANSWER), settings=THINK) as at:
        parsed = events((await at.chat(stream=True, n=n, stream_options={"include_usage": True})).text)
    for choice in range(n):
        assert thoughts(parsed, choice) == thoughts(parsed, choice, "reasoning") == "two and\ntwo"
        assert deltas(parsed, choice) == "\n\nfour"
    assert parsed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parsed[-2]["usage"]["completion_tokens_details"] == {"reasoning_tokens": n * len("two and\ntwo")}
    assert parsed[-1] is None


@given(text=st.text("a</think> é\n", max_size=30), cuts=st.sets(st.integers(1, 60)), marked=st.booleans())
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_stream_is_the_whole_answer_however_it_is_cut(text: str, cuts: set[int], marked: bool) -> None:
    data = (f"<think>{text}" if marked else text).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges)]
    async with site(pieces_of(parts), settings=THINK) as at:
        whole = (await at.chat()).json()
        parsed = events((await at.chat(stream=True)).text)
    message = whole["choices"][0]["message"]
    assert (thoughts(parsed), deltas(parsed)) == (message.get("reasoning") or "", message["content"] or "")
    if marked:
        before, _, after = text.partition("</think>")
        assert (thoughts(parsed), deltas(parsed)) == (before, after)


async def test_without_the_setting_all_is_content() -> None:
    async with site(says(ANSWER)) as at:
        body = (await at.chat()).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": ANSWER, "refusal": None}
    assert "completion_tokens_details" not in body["usage"]


async def test_plain_completions_are_as_the_model_wrote_them() -> None:
    async with site(says(ANSWER), settings=THINK) as at:
        body = (await at.complete()).json()
    assert body["choices"][0]["text"] == ANSWER
    assert "completion_tokens_details" not in body["usage"]


async def test_an_answer_cut_while_it_reasons_has_no_content() -> None:
    async with site(says("<think>hm", finish=FinishReason.LENGTH), settings=THINK) as at:
        choice = (await at.chat()).json()["choices"][0]
    assert (choice["message"]["content"], choice["message"]["reasoning"]) == (None, "hm")
    assert choice["finish_reason"] == "length"


async def test_an_answer_begins_inside_where_the_prompt_ends_with_the_mark() -> None:
    """As templates of DeepSeek-R1 and Qwen3-Thinking do; the built-in one puts `<assistant>` there."""
    marks = {**THINK, "reasoning_start": "<assistant>"}
    async with site(bytewise("hm</think>four"), settings=marks) as at:
        opened = (await at.chat()).json()["choices"][0]["message"]
        plain = (await at.chat(add_generation_prompt=False)).json()["choices"][0]["message"]
    assert (opened["reasoning"], opened["content"]) == ("hm", "four")
    assert (plain.get("reasoning"), plain["content"]) == (None, "hm</think>four")


async def test_deepseek_r1_begins_with_reasoning_unless_the_prompt_has_closed_it() -> None:
    async with site(says("hm</think>four"), settings=R1) as at:
        open_ = (await at.chat()).json()["choices"][0]["message"]
    async with site(says("four"), settings={**R1, "reasoning_end": "<assistant>"}) as at:
        closed = (await at.chat()).json()["choices"][0]["message"]
    assert (open_["reasoning"], open_["content"]) == ("hm", "four")
    assert (closed.get("reasoning"), closed["content"]) == (None, "four")


@pytest.mark.parametrize(
    ("stop", "include", "reasoning", "content"),
    [
        ("wo", False, "t", None),  # in the reasoning, too
        ("ou", False, "two and\ntwo", "\n\nf"),
        ("</think>", False, "two and\ntwo", None),
        ("</think>", True, "two and\ntwo", None),
        ("<think>", True, None, ""),
    ],
)
async def test_a_stop_string_ends_an_answer_wherever_it_comes(
    stop: str, include: bool, reasoning: str | None, content: str | None
) -> None:
    async with site(bytewise(ANSWER), settings=THINK) as at:
        choice = (await at.chat(stop=[stop], include_stop_str_in_output=include)).json()["choices"][0]
    assert (choice["message"].get("reasoning"), choice["message"]["content"]) == (reasoning, content)
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(
    ("stop", "count"),
    [
        ("wo", len("two")),  # computed, though "wo" is not shown
        ("four", len("two and\ntwo")),
        ("</think>", len("two and\ntwo")),
        ("</thinking>", len("two and\ntwo")),  # withheld until it was none
        (" a", len("two a")),
    ],
)
async def test_a_stop_string_changes_no_count_of_reasoning(stop: str, count: int) -> None:
    async with site(bytewise(ANSWER), settings=THINK) as at:
        body = (await at.chat(stop=[stop])).json()
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": count}


async def test_b15_every_token_of_reasoning_and_of_the_marks_has_its_logprob() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        tokens = (*ANSWER.encode(), EOS)
        for at, token in enumerate(tokens):
            last = at == len(tokens) - 1
            yield (piece(0, (token,), finish=FinishReason.STOP if last else None, first=at == 0, logprobs=True),)

    async with site(script, settings=THINK) as at:
        whole = (await at.chat(logprobs=True)).json()
        parsed = events((await at.chat(stream=True, logprobs=True)).text)
    entries = whole["choices"][0]["logprobs"]["content"]
    streamed = [one for event in parsed[1:-1] for one in event["choices"][0]["logprobs"]["content"]]
    assert len(entries) == len(streamed) == whole["usage"]["completion_tokens"] == len(ANSWER) + 1
    assert entries[0]["logprob"] == logprobs_of(60).logprobs[0]
    assert thoughts(parsed) == "two and\ntwo"


async def test_json_by_schema_has_no_reasoning_because_its_grammar_binds_from_the_first_token() -> None:
    async with site(says("{}"), settings=R1) as at:
        body = (await at.chat(response_format={"type": "json_object"})).json()
    assert body["choices"][0]["message"]["content"] == "{}"
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


async def test_what_is_learnt_of_lengths_counts_reasoning() -> None:
    async with site(says(ANSWER), settings=THINK) as at:
        await at.chat()
        assert at.observer.records[0].completion_tokens == len(ANSWER) + 1
        assert at.observer.shown == len(ANSWER) + 1


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "reasoning": "hm"},
        {"role": "assistant", "content": "four", "reasoning_content": "hm", "reasoning": "hm", "refusal": None},
        {"role": "assistant", "reasoning_content": "hm"},
        {"role": "assistant", "reasoning_content": "", "reasoning": "hm"},
    ],
)
async def test_an_answer_can_be_sent_back(message: dict[str, Any]) -> None:
    async with site(says("a"), settings=THINK) as at:
        turns = [{"role": "user", "content": "2+2"}, message, {"role": "user", "content": "sure?"}]
        assert (await at.chat(messages=turns)).status_code == 200


@pytest.mark.parametrize("marks", [("x", "x"), (" <think>", "</think>"), ("<think>", "</think>\n")])
def test_marks_that_cannot_be_told_apart_are_refused(marks: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="reasoning_start and reasoning_end"):
        GatewayConfig.model_validate({"reasoning_start": marks[0], "reasoning_end": marks[1]})
