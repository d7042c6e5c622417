"""The grammars of calls that a model must make, as the engine's own backend reads them."""

import json
from typing import Any

import pytest

from engine.base import WorkerIdentity
from engine.config import EngineConfig
from engine.vllm.settings import engine_args
from gateway.http.tool_schema import arguments_schema, list_schema
from gateway.http.tools import Tool
from proto.worker import Role

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


def accepts(schema: str, text: str, **how: Any) -> bool:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    accepted: bool = _is_grammar_accept_string(xgrammar.Grammar.from_json_schema(schema, **how), text)
    return accepted


@pytest.mark.parametrize("compact", [False, True])
def test_white_space_between_the_parts_of_a_call_has_no_end_unless_it_is_left_out(compact: bool) -> None:
    pytest.importorskip("vllm")
    args = engine_args(EngineConfig(model="m", compact_json=compact), WorkerIdentity("w", "e", Role.BOTH), "cpu")
    found = args.structured_outputs_config
    assert (found.backend, found.disable_any_whitespace) == (("xgrammar", True) if compact else ("auto", False))
    # As vLLM's backend has it compiled.
    how = {"any_whitespace": not compact, "separators": (",", ":") if compact else None}
    bare = WEATHER.replace(" ", "")
    schema = list_schema(TOOLS, single=True).json_schema
    assert accepts(schema, f"[{bare}]", **how)
    for at in (0, bare.index(":") + 1, bare.index(",") + 1, len(bare)):
        assert accepts(schema, f"[{bare[:at]}{' ' * 5000}{bare[at:]}]", **how) is not compact


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
