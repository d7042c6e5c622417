"""Tool calls through the official client. The demo model's template knows no tools, so only the simulated server has them."""

import json
import os
from typing import Any

import openai
import pytest
from openai import OpenAI

pytestmark = pytest.mark.skipif("TANDEM_BASE_URL" in os.environ, reason="needs a chat template that shows tools")

MESSAGES: Any = [{"role": "user", "content": "Is it raining in Rome or in Paris?"}]
CITY: Any = {"$ref": "#/$defs/City"}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": CITY, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "$defs": {"City": {"enum": ["Rome", "Paris"]}},
            },
        },
    },
    {"type": "function", "function": {"name": "time"}},
]


def asked(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": MESSAGES, "tools": TOOLS, "max_tokens": 200, "temperature": 0, **more}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_calls_that_are_asked_for_always_parse(client: OpenAI, model: str, choice: Any) -> None:
    answer = client.chat.completions.create(**asked(model, tool_choice=choice))
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.content is None
    (call,) = message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Paris")

    with client.chat.completions.stream(**asked(model, tool_choice=choice)) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [(event.name, event.arguments) for event in events] == [("weather", call.function.arguments)]
    assert final.finish_reason == "tool_calls"

    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    turns = [*MESSAGES, message.model_dump(exclude_none=True), result]
    again = client.chat.completions.create(**asked(model, messages=turns, tool_choice="none", max_tokens=4))
    assert again.choices[0].finish_reason in ("stop", "length")


def test_a_bad_tool_is_named(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked(model, tools=[{"type": "function", "function": {"name": "no name"}}]))
    assert caught.value.param == "tools[0].function.name"
