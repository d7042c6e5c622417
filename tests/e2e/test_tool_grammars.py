"""The grammars of calls that a model must make, as the engine's own backend reads them."""

import json
from typing import Any

import pytest

from gateway.http.tool_schema import arguments_schema, list_schema
from gateway.http.tools import Tool

pytestmark = pytest.mark.engine

CITY: dict[str, Any] = {
    "$defs": {"City": {"enum": ["Rome", "Paris"]}},
    "properties": {"city": {"$ref": "#/$defs/City"}},
}
TREE: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
TOOLS = tuple(
    Tool.model_validate({"type": "function", "function": {"name": name, "parameters": parameters}})
    for name, parameters in (("weather", {**CITY, "required": ["city"]}), ("tree", TREE), ("time", None))
)
WEATHER = '{"name": "weather", "parameters": {"city": "Rome"}}'


def accepts(schema: str, text: str) -> bool:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    accepted: bool = _is_grammar_accept_string(xgrammar.Grammar.from_json_schema(schema), text)
    return accepted


@pytest.mark.parametrize(
    ("text", "many", "one"),
    [
        (f"[{WEATHER}]", True, True),
        (f'[{WEATHER}, {{"name": "time", "parameters": {{}}}}]', True, False),
        ('[{"name": "tree", "parameters": {"next": {"next": {}}}}]', True, True),
        ("[]", False, False),
        (WEATHER, False, False),
        ('[{"name": "weather", "parameters": {"city": "Oslo"}}]', False, False),
        ('[{"name": "weather", "parameters": {}}]', False, False),
        ('[{"name": "tree", "parameters": {"next": 1}}]', False, False),
        ('[{"name": "gone", "parameters": {}}]', False, False),
        ('[{"parameters": {}, "name": "time"}]', False, False),  # the name comes first
    ],
)
def test_a_required_answer_is_a_list_of_valid_calls(text: str, many: bool, one: bool) -> None:
    assert accepts(list_schema(TOOLS, single=False).json_schema, text) is many
    assert accepts(list_schema(TOOLS, single=True).json_schema, text) is one


def test_a_named_answer_is_valid_arguments() -> None:
    schema = arguments_schema(TOOLS[0]).json_schema
    assert accepts(schema, '{"city": "Paris"}')
    assert not accepts(schema, json.dumps({"city": "Oslo"}))
    assert not accepts(schema, '"Paris"')
