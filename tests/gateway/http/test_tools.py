"""Tools: what the model is told of them, what it must answer, and how its calls reach the client."""

import functools
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.http import tool_use
from gateway.http.tool_schema import check_parameters
from gateway.request.intent import Intent
from proto.sampling import StructuredKind
from proto.work import FinishReason
from tests.gateway.http.scripted import Batch, Script, Site, deltas, events, piece, says, site

HERMES: dict[str, Any] = {"tool_parser": "hermes"}
LLAMA: dict[str, Any] = {"tool_parser": "llama3_json"}
BOTH: dict[str, Any] = {**HERMES, "reasoning_parser": "think"}
PLACE: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "now", "parameters": PLACE},
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "time"}}
TOOLS = [WEATHER, TIME]
ARGUMENTS = '{"place": "Köln"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "weather"}}


def bytewise(text: str, finish: FinishReason = FinishReason.STOP) -> Script:
    """A token a byte, and a piece a token."""

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        data = [*text.encode(), *([256] if finish is FinishReason.STOP else [])]
        for at, byte in enumerate(data):
            end = finish if at == len(data) - 1 else None
            yield tuple(piece(choice, (byte,), finish=end, first=at == 0) for choice in range(intent.choices))

    return script


def collected(parsed: list[Any], choice: int = 0) -> list[dict[str, Any]]:
    """The calls of a stream, as a client puts them together: ids and names may come but once."""
    calls: list[dict[str, Any]] = []
    for entry in (entry for event in parsed if event for entry in event["choices"] if entry["index"] == choice):
        for delta in entry["delta"].get("tool_calls", ()):
            if "id" in delta:
                assert delta["index"] == len(calls)
                assert delta["type"] == "function"
                calls.append({"id": delta["id"], "type": "function", "function": dict(delta["function"])})
            else:
                assert set(delta["function"]) == {"arguments"}
                calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls


def last(parsed: list[Any]) -> Any:
    return parsed[-2]["choices"][0]["finish_reason"]


def told(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]


def prompt_of(at: Site) -> str:
    return bytes(at.intent.prompts[0]).decode()


async def test_calls_are_given_whole() -> None:
    async with site(says(f"Let me look.\n{CALL}\n{SECOND}"), settings=HERMES) as at:
        body = (await at.chat(tools=TOOLS)).json()
    (choice,) = body["choices"]
    message = choice["message"]
    assert told(message) == [("weather", ARGUMENTS), ("time", "{}")]
    assert message["content"] == "Let me look.\n"
    assert choice["finish_reason"] == "tool_calls"
    assert {call["type"] for call in message["tool_calls"]} == {"function"}
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert body["usage"]["completion_tokens"] == len(f"Let me look.\n{CALL}\n{SECOND}".encode()) + 1


@pytest.mark.parametrize("settings", [HERMES, BOTH])
@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_has_each_name_once_and_arguments_that_join_to_what_was_written(
    settings: dict[str, Any], n: int
) -> None:
    text = f"<think>{SECOND}</think>\n\n{CALL}{SECOND}" if settings is BOTH else f"{CALL}{SECOND}"
    async with site(bytewise(text), settings=settings) as at:
        whole = (await at.chat(tools=TOOLS, n=n)).json()
        parsed = events((await at.chat(tools=TOOLS, n=n, stream=True)).text)
    for choice in range(n):
        message = whole["choices"][choice]["message"]
        calls = collected(parsed, choice)
        assert [call["function"] for call in calls] == [call["function"] for call in message["tool_calls"]]
        assert told(message) == [("weather", ARGUMENTS), ("time", "{}")]
        assert (deltas(parsed, choice), message["content"]) == ("", None)
        assert message.get("reasoning") == (SECOND if settings is BOTH else None)
    ids = {call["id"] for choice in range(n) for call in collected(parsed, choice)}
    assert len(ids) == 2 * n
    assert last(parsed) == "tool_calls"
    parts = [event for event in parsed[:-1] if "tool_calls" in event["choices"][0]["delta"]]
    assert len(parts) > len(ARGUMENTS) * n  # as they are written, not at the end


async def test_bare_json_is_a_call_of_llama() -> None:
    async with site(says('{"name": "weather", "parameters": {"place": "Bonn"}}'), settings=LLAMA) as at:
        choice = (await at.chat(tools=TOOLS)).json()["choices"][0]
    assert told(choice["message"]) == [("weather", '{"place": "Bonn"}')]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "text", ["Hello.", "<tool_call>weather()</tool_call>", '<tool_call>{"name": "rm", "arguments": {}}</tool_call>']
)
async def test_what_is_no_call_is_content(text: str, stream: bool) -> None:
    async with site(bytewise(text), settings=HERMES) as at:
        reply = await at.chat(tools=TOOLS, stream=stream)
    if stream:
        parsed = events(reply.text)
        assert (deltas(parsed), collected(parsed), last(parsed)) == (text, [], "stop")
    else:
        choice = reply.json()["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert choice["finish_reason"] == "stop"


async def test_an_answer_cut_within_a_call_says_length_and_gives_what_there_is() -> None:
    async with site(bytewise(CALL[:-20], FinishReason.LENGTH), settings=HERMES) as at:
        choice = (await at.chat(tools=TOOLS)).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert ARGUMENTS.startswith(told(choice["message"])[0][1])


@pytest.mark.parametrize("stream", [False, True])
async def test_without_parallel_calls_an_answer_ends_with_its_first(stream: bool) -> None:
    async with site(bytewise(CALL + SECOND), settings=HERMES) as at:
        reply = await at.chat(tools=TOOLS, parallel_tool_calls=False, stream=stream)
        assert at.lifecycle.streams[-1].stopped == [0]  # the engine is told
        assert at.observer.records[-1].completion_tokens == len(CALL.encode()) - len("\n</tool_call>")
    choice = events(reply.text)[-2]["choices"][0] if stream else reply.json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"] if not stream else None) == ("tool_calls", None)
    calls = collected(events(reply.text)) if stream else choice["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather"]


async def test_a_stop_string_ends_an_answer_in_a_call_too() -> None:
    async with site(bytewise(CALL), settings=HERMES) as at:
        choice = (await at.chat(tools=TOOLS, stop=["Köln"])).json()["choices"][0]
    assert told(choice["message"]) == [("weather", '{"place": "')]
    assert choice["stop_reason"] == "Köln"


async def test_the_model_is_told_of_tools_as_the_client_wrote_them_and_of_none_it_may_not_call() -> None:
    async with site(says("a"), settings=HERMES) as at:
        await at.chat(tools=TOOLS)
        assert json.dumps(TOOLS, ensure_ascii=False) in prompt_of(at)
        assert at.intent.sampling.structured is None
        for choice in ("none", NAMED, "required"):
            await at.chat(tools=TOOLS, tool_choice=choice)
            assert ("weather" in prompt_of(at)) is at.intent.tools is (choice != "none")
        counted = await at.client.post(
            "/tokenize", json={"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
        )
        assert counted.json()["tokens"] == list(at.intent.prompts[0])


async def test_a_conversation_with_calls_goes_into_the_template() -> None:
    call: dict[str, Any] = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
    odd: dict[str, Any] = {
        "id": "call_2",
        "type": "function",
        "function": {"name": "time", "arguments": "{oops"},
        "index": 1,
    }
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call, odd], "refusal": None, "function_call": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "noon"}]},
    ]
    async with site(says("a")) as at:  # without tools and without a parser: it is only a conversation
        assert (await at.chat(messages=turns)).status_code == 200
        prompt = prompt_of(at)
    given: list[dict[str, Any]] = [{**call, "function": {"name": "weather", "arguments": {"place": "Köln"}}}, {**odd}]
    del given[1]["index"]
    assert f"<assistant>\n\n{json.dumps(given, ensure_ascii=False)}\n<tool>\nrain\n<tool>\nnoon\n" in prompt


async def test_an_answer_with_calls_can_be_sent_back() -> None:
    async with site(says(CALL), settings=BOTH) as at:
        message = (await at.chat(tools=TOOLS)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
        turns = [{"role": "user", "content": "hi"}, message, result]
        assert (await at.chat(messages=turns, tools=TOOLS)).status_code == 200


@pytest.mark.parametrize(
    "written", [r'{"place": "\ud800"}', r'"{\"place\": \"\ud800\"}"', r'"{\"place\": \"\\ud800\"}"']
)
@pytest.mark.parametrize("call", ['{{"name": "weather", "arguments": {0}}}', '{{"arguments": {0}, "name": "weather"}}'])
async def test_half_of_a_surrogate_pair_in_a_call_goes_to_the_client_and_back_as_its_escape(
    call: str, written: str
) -> None:
    """JSON can name it, and UTF-8 cannot hold it: encoding the event or the prompt failed."""
    async with site(bytewise(f"<tool_call>{call.format(written)}</tool_call>"), settings=HERMES) as at:
        message = (await at.chat(tools=TOOLS)).json()["choices"][0]["message"]
        (told_of,) = message["tool_calls"]
        assert json.loads(told_of["function"]["arguments"]) == {"place": "\ud800"}
        turns = [{"role": "user", "content": "hi"}, message, {"role": "tool", "tool_call_id": "1", "content": "rain"}]
        assert (await at.chat(messages=turns)).status_code == 200
        assert r"\ud800" in prompt_of(at)


async def test_b58_tools_are_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas as large as a body may be took seconds of it."""
    seen: list[bool] = []

    def watched(parameters: dict[str, Any] | None) -> str:
        seen.append(threading.current_thread() is threading.main_thread())
        return check_parameters(parameters)

    monkeypatch.setattr(tool_use, "check_parameters", watched)
    async with site(says("a"), settings=HERMES) as at:
        assert (await at.chat(tools=TOOLS)).status_code == 200
    assert seen == [False, False]


@pytest.mark.parametrize("settings", [{}, HERMES, {"reasoning_parser": "deepseek_r1"}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_call_is_its_arguments_by_schema(settings: dict[str, Any], stream: bool) -> None:
    async with site(bytewise(ARGUMENTS), settings=settings) as at:
        reply = await at.chat(tools=TOOLS, tool_choice=NAMED, stream=stream)
        structured = at.intent.sampling.structured
    assert structured is not None
    assert structured.kind is StructuredKind.JSON_SCHEMA
    assert json.loads(structured.json_schema) == PLACE
    if stream:
        parsed = events(reply.text)
        (call,) = collected(parsed)
        assert (call["function"], last(parsed)) == ({"name": "weather", "arguments": ARGUMENTS}, "tool_calls")
    else:
        choice = reply.json()["choices"][0]
        assert told(choice["message"]) == [("weather", ARGUMENTS)]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


@pytest.mark.parametrize("parallel", [None, False])
async def test_a_required_call_is_a_list_by_schema(parallel: bool | None) -> None:
    text = f'[{{"name":"weather","parameters":{ARGUMENTS}}}, {{"name":"time","parameters":{{}}}}]'
    tree: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/T"}, "up": {"$ref": "#"}, "named": {"$ref": "#1"}},
        "$defs": {"T": True},
    }
    tools = [*TOOLS, {"type": "function", "function": {"name": "tree", "parameters": tree}}]
    async with site(bytewise(text)) as at:
        reply = await at.chat(tools=tools, tool_choice="required", parallel_tool_calls=parallel)
        parsed = events((await at.chat(tools=tools, tool_choice="required", stream=True)).text)
        structured = at.lifecycle.intents[0].sampling.structured
    assert structured is not None
    schema = json.loads(structured.json_schema)
    assert [entry["properties"]["name"] for entry in schema["items"]["anyOf"]] == [
        {"const": "weather"}, {"const": "time"}, {"const": "tree"},
    ]  # fmt: skip
    assert schema["$defs"]["tool1"] == {"type": "object", "properties": {}}
    assert schema["$defs"]["tool2"]["properties"] == {
        "next": {"$ref": "#/$defs/tool2/$defs/T"},
        "up": {"$ref": "#/$defs/tool2"},
        "named": {"$ref": "#1"},  # an anchor; behind the path it would be another tool's number
    }
    assert (schema["minItems"], schema.get("maxItems")) == (1, 1 if parallel is False else None)
    wanted = [("weather", ARGUMENTS), ("time", "{}")]
    assert told(reply.json()["choices"][0]["message"]) == (wanted[:1] if parallel is False else wanted)
    assert reply.json()["choices"][0]["message"]["content"] is None
    assert [tuple(call["function"].values()) for call in collected(parsed)] == wanted


DEEP: dict[str, Any] = functools.reduce(
    lambda inner, _: {"type": "object", "properties": {"a": inner}}, range(40), dict[str, Any](type="string")
)


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [TIME, {"type": "function", "function": {"name": "f", **fields}}]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    (function(name="two words"), "tools[1].function.name"),
    (function(name="x" * 65), "tools[1].function.name"),
    (function(name="time"), "tools[1].function.name"),  # twice
    (function(parameters=[]), "tools[1].function.parameters"),
    (function(parameters={"type": "string"}), "tools[1].function.parameters"),
    (function(parameters={"properties": []}), "tools[1].function.parameters"),
    (function(parameters={"properties": {"a": 1}}), "tools[1].function.parameters"),
    (function(parameters={"required": "a"}), "tools[1].function.parameters"),
    (function(parameters={"properties": {"a": {"$ref": "https://x.example/y"}}}), "tools[1].function.parameters"),
    (function(parameters={"properties": {"a": {"$ref": 5}}}), "tools[1].function.parameters"),
    (function(parameters=DEEP), "tools[1].function.parameters"),
    (function(url="http://x"), "tools[1].function.url"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": f"f{at}"}} for at in range(129)]}, "tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": NAMED, "tools": []}, "tool_choice"),
    ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
    ({"tools": TOOLS, "kv_transfer_params": {}}, "kv_transfer_params"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]}]}, "messages[0].tool_calls[0].function.arguments"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
]  # fmt: skip


async def test_bad_tools_are_errors_that_name_the_parameter() -> None:
    async with site(says("a"), settings=HERMES) as at:
        for body, param in BAD:
            reply = await at.client.post(
                "/v1/chat/completions", json={"messages": [{"role": "user", "content": "SECRET"}], **body}
            )
            error = reply.json()["error"]
            assert (reply.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error"), body
            assert "SECRET" not in reply.text
        assert not at.lifecycle.intents


async def test_a_choice_of_the_models_needs_to_be_read_and_the_setting_is_named() -> None:
    async with site(says("a")) as at:
        for choice in ({}, {"tool_choice": "auto"}):
            error = (await at.chat(tools=TOOLS, **choice)).json()["error"]
            assert (error["param"], error["code"]) == ("tools", "unsupported_parameter")
            assert "gateway.tool_parser" in error["message"]
        assert (await at.chat(tools=TOOLS, tool_choice="none")).status_code == 200
        assert (await at.chat(tools=[], tool_choice="auto")).status_code == 200


async def test_plain_completions_take_no_tools_and_their_values_for_none() -> None:
    async with site(says("a"), settings=HERMES) as at:
        for body in ({"tools": TOOLS}, {"tool_choice": "required"}):
            error = (await at.complete(**body)).json()["error"]
            assert (error["param"], error["code"]) == (next(iter(body)), "unsupported_parameter")
        assert (await at.complete(tools=[], tool_choice="none")).status_code == 200


async def test_tools_that_the_template_would_not_show_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gateway.text.byte_level._TEMPLATE", "{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    async with site(says("a"), settings=HERMES) as at:
        error = (await at.chat(tools=TOOLS)).json()["error"]
        assert (error["param"], error["code"]) == ("tools", "unsupported_parameter")
        assert (await at.chat()).status_code == 200
