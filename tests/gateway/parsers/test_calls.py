"""Tool calls: the same whatever pieces the text comes in, and nothing that the model wrote is lost."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parsers.call_json import Braces
from gateway.parsers.calls import CallParser
from gateway.parsers.named_call import NamedCall
from gateway.parsers.reader import Reader
from gateway.parsers.reasoning import Reasoning, ReasoningMarks, ReasoningParser
from gateway.parsers.said import Said, joined
from gateway.parsers.tool_parser import ToolParser, required_calls
from tests.examples import examples

NAMES = ("look", "look_up", "add")
Make = Callable[..., CallParser]
MAKERS: dict[str, Make] = {
    "hermes": lambda single=False: ToolParser.HERMES.calls(NAMES, single=single),
    "llama3_json": lambda single=False: ToolParser.LLAMA3_JSON.calls(NAMES, single=single),
    "required": lambda single=False: required_calls(NAMES, single=single),
}
#: Pieces of which texts are made that nearly are calls.
SHARDS = (
    "<tool_call>", "</tool_call>", "<tool_", "call>", "<|python_tag|>", "[", "]", ",", "; ", "\n", " ", "{", "}", '"',
    '{"name": "look", "arguments": {', '{"name":"look_up","parameters":{"a":"</tool_call>}"}}', '"name": ', '"add"',
    '{"arguments": {"b": [1, {}]}, "name": "add"}', '{"name": "add"}', '{"name": "none", "arguments": {}}', "\\", "hi", "é",
)  # fmt: skip


def read(parser: CallParser, pieces: Sequence[str]) -> Said:
    said = []
    for piece in pieces:
        said.append(parser.push(piece))
        if parser.done:
            break
    return joined([*said, parser.flush()])


def told(said: Said) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in said.calls]


@st.composite
def cut(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> tuple[str, list[str]]:
    text = draw(texts)
    edges = [0, *sorted(draw(st.sets(st.integers(0, max(0, len(text))), max_size=8))), len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)]


near_calls = st.lists(st.sampled_from(SHARDS), max_size=10).map("".join)


@pytest.mark.parametrize("name", MAKERS)
@given(case=cut(near_calls), single=st.booleans())
@examples(200)
def test_the_parts_depend_on_the_text_alone(name: str, case: tuple[str, list[str]], single: bool) -> None:
    text, pieces = case
    make = MAKERS[name]
    assert read(make(single), pieces) == read(make(single), [text]) == read(make(single), list(text))


@pytest.mark.parametrize("name", MAKERS)
@given(text=near_calls)
@examples(200)
def test_an_answer_without_a_call_is_all_content(name: str, text: str) -> None:
    said = read(MAKERS[name](), [text])
    assert said.calls or said.content == text


arguments = st.dictionaries(
    st.text('ab"\\ é{', max_size=3),
    st.recursive(st.text('a"\\}]</tool_call> é\n', max_size=12) | st.integers(), st.lists),
    max_size=3,
)
calls = st.tuples(st.sampled_from(NAMES), arguments)
words = st.text("ab <>{}/é\n", max_size=6)


@pytest.mark.slow
@given(turns=st.lists(st.tuples(words, calls), min_size=1, max_size=3), last=words, ascii=st.booleans(), data=st.data())
@examples(200)
def test_hermes_gives_calls_and_the_text_around_them(
    turns: list[tuple[str, tuple[str, Any]]], last: str, ascii: bool, data: st.DataObject
) -> None:
    def written(call: tuple[str, Any]) -> str:
        return json.dumps({"name": call[0], "arguments": call[1]}, ensure_ascii=ascii)

    text = "".join(f"{before}<tool_call>\n{written(call)}\n</tool_call>" for before, call in turns) + last
    _, pieces = data.draw(cut(st.just(text)))
    said = read(MAKERS["hermes"](), pieces)
    assert told(said) == [call for _, call in turns]
    assert [call.arguments for call in said.calls] == [json.dumps(call[1], ensure_ascii=ascii) for _, call in turns]
    between = [*(before for before, _ in turns), last]
    assert said.content == "".join(part for part in between if part.strip())


@pytest.mark.slow
@given(wanted=st.lists(calls, min_size=1, max_size=3), data=st.data())
@examples(100)
@pytest.mark.parametrize("name", ["llama3_json", "required"])
def test_bare_json_gives_calls(name: str, wanted: list[tuple[str, Any]], data: st.DataObject) -> None:
    written = [json.dumps({"name": name, "parameters": given}) for name, given in wanted]
    text = "; ".join(written) if name == "llama3_json" else f"[{', '.join(written)}]"
    _, pieces = data.draw(cut(st.just(text)))
    said = read(MAKERS[name](), pieces)
    assert (told(said), said.content) == (wanted, "")


def test_a_call_is_told_before_its_arguments_are_complete_and_they_come_as_they_are_written() -> None:
    parser = MAKERS["hermes"]()
    deltas = [
        parser.push(piece).calls for piece in ('<tool_call>{"name": "look", "arguments": ', '{"a"', ": 1", "}", "}")
    ]
    assert [[(one.index, one.name, one.arguments) for one in calls] for calls in deltas] == [
        [],
        [(0, "look", ""), (0, "", '{"a"')],
        [(0, "", ": 1")],
        [(0, "", "}")],
        [],
    ]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('<tool_call>{"name": "gone", "arguments": {}}</tool_call>', True, []),  # no such function
        ('a <tool_call>{"name": "look", "arguments": [1]}</tool_call> b', True, []),
        ("<tool_call>look()</tool_call>", True, []),
        ('<tool_call>{"name": "look", "arg', True, []),  # cut short before the call had begun
        ('<tool_call>{"name": "look", "arguments": {"a": 1', "", [("look", '{"a": 1')]),  # and after
        ('<tool_call>{"name": "look", "arguments": {"a": 1}</tool_call>', "", [("look", '{"a": 1}')]),  # a brace short
        ('<tool_call>{"name": "look", "arguments": {"a": 1}}', "", [("look", '{"a": 1}')]),  # no end mark
        ('<tool_call>{"name": "look"}</tool_call>', "", [("look", "{}")]),
        ('<tool_call>{"name": "look", "arguments": null}', "", [("look", "{}")]),
        ('<tool_call>{"arguments": {"a": "é"}, "name": "look"}</tool_call>', "", [("look", '{"a": "é"}')]),
        ('<tool_call>{"name": "look", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("look", '{"a": 1}')]),
        ('<tool_call>{"name": "look", "arguments": {}, "x": 1}', ', "x": 1}', [("look", "{}")]),
        ("a<tool_call", True, []),
        ("", True, []),
    ],
)  # fmt: skip
def test_what_models_write_instead(text: str, content: str | bool, calls: list[tuple[str, str]]) -> None:
    said = read(MAKERS["hermes"](), list(text))
    assert said.content == (text if content is True else content)
    assert [(call.name, call.arguments) for call in said.calls] == calls


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('<|python_tag|>{"name": "look", "parameters": {"a": 1}}', "", [("look", '{"a": 1}')]),
        ('{"type": "function", "name": "look", "parameters": {"a": 1}}', "", [("look", '{"a": 1}')]),
        ('{"answer": {"name": "look"}}', True, []),  # an answer in JSON
        ('{"name": "gone", "parameters": {}}', True, []),
        ('Sure: {"name": "look", "parameters": {}}', True, []),
        ("<|python_tag|>print(1)", True, []),
        ('{"name": "look", "parameters": {}}; {"name": "gone"}', '; {"name": "gone"}', [("look", "{}")]),
        ('{"name": "look", "parameters": {}}\nThere.', "\nThere.", [("look", "{}")]),
        ("  <|pyth", True, []),
    ],
)
def test_what_llama_writes_instead(text: str, content: str | bool, calls: list[tuple[str, str]]) -> None:
    said = read(MAKERS["llama3_json"](), list(text))
    assert said.content == (text if content is True else content)
    assert [(call.name, call.arguments) for call in said.calls] == calls


def test_where_one_call_is_wanted_the_answer_ends_with_it() -> None:
    one = '<tool_call>{"name": "look", "arguments": {}}'
    parser = MAKERS["hermes"](single=True)
    assert [len(parser.push(piece).calls) for piece in (one[:-1], "}")] == [2, 0]
    assert parser.done
    bad = MAKERS["hermes"](single=True)
    bad.push("<tool_call>no</tool_call>")
    assert not bad.done


def test_the_answer_to_a_named_call_is_its_arguments() -> None:
    parser = NamedCall("look")
    said = [parser.push(piece) for piece in ("", '{"a"', ":1}")]
    assert [[(one.index, one.name, one.arguments) for one in step.calls] for step in said] == [
        [], [(0, "look", '{"a"')], [(0, "", ":1}")],
    ]  # fmt: skip
    assert joined(said).content == ""


def test_reasoning_may_speak_of_calls_and_content_comes_after_it() -> None:
    marks = ReasoningMarks(ReasoningParser.THINK, "<think>", "</think>")
    reader = Reader(Reasoning(marks, opened=False), MAKERS["hermes"]())
    call = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    text = f"<think>{call}?</think>\n\n{call}"
    said = joined([*(reader.push(char) for char in text), reader.flush()])
    assert (said.reasoning, said.content, told(said)) == (f"{call}?", "", [("add", {"a": 1})])
    assert reader.called
    assert not reader.done


@given(
    value=st.recursive(
        st.text('a{}[]"\\é', max_size=6),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('{"', max_size=2), inner),
    ),
    rest=st.text('}]x"', max_size=3),
)
@examples(60)
def test_braces_end_where_the_json_does(value: Any, rest: str) -> None:
    text = json.dumps({"": value})
    assert Braces().end(text + rest) == len(text)
    slow = Braces()
    ends = [slow.end(char) for char in text]
    assert ends == [-1] * (len(text) - 1) + [1]
