"""Answers by a schema: the shortest JSON, and whatever a client sends as a schema concerns its own request alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulated.structured import UnsupportedSchemaError, minimal_json
from proto.sampling import StructuredKind, StructuredOutput
from tests.examples import examples


def made(schema: Any) -> Any:
    return json.loads(minimal_json(StructuredOutput(StructuredKind.JSON_SCHEMA, json.dumps(schema))))


def of_a(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **more}


def test_the_shortest_value_is_made() -> None:
    assert made(of_a({"type": "array", "minItems": 2, "items": {"type": "string", "minLength": 3}})) == {
        "a": ["xxx", "xxx"]
    }
    assert made(of_a({"$ref": "#/$defs/n"}, **{"$defs": {"n": {"type": "integer", "minimum": 7}}})) == {"a": 7}


@pytest.mark.parametrize(
    "odd",
    [
        {"$ref": 5},
        {"$ref": None},
        {"enum": []},
        {"enum": 5},
        {"anyOf": 5},
        {"allOf": [5]},
        {"type": []},
        {"type": "integer", "minimum": "x"},
        {"type": "integer", "minimum": 1, "multipleOf": 0},
        {"type": "array", "minItems": "many"},
        {"type": "object", "properties": [1]},
        {"type": "string", "minLength": {}},
    ],
)
def test_a_schema_with_words_of_the_wrong_kind_is_refused_and_nothing_breaks(odd: Any) -> None:
    with pytest.raises(UnsupportedSchemaError):
        made(of_a(odd))


def test_a_short_schema_of_an_endless_value_is_refused_at_once() -> None:
    """One request held up the whole engine, or took all memory."""
    chain = {f"d{at}": {"properties": {f"p{n}": {"$ref": f"#/$defs/d{at + 1}"} for n in range(12)}} for at in range(15)}
    nested: dict[str, Any] = {"type": "null"}
    for _ in range(6):
        nested = {"type": "array", "minItems": 5000, "items": nested}
    for endless in (
        of_a({"$ref": "#/$defs/d0"}, **{"$defs": {**chain, "d15": {}}}),
        nested,
        {"type": "string", "minLength": 10**12},
        {"$ref": "#"},
    ):
        with pytest.raises(UnsupportedSchemaError):
            made(endless)


_WORDS = ("type", "properties", "items", "minItems", "enum", "$ref", "anyOf", "allOf", "const", "minimum", "multipleOf")
_schemas = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**9)
    | st.sampled_from(("object", "array", "integer", "#", "#/items")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(schema=_schemas)
@examples(200)
def test_any_schema_is_a_value_or_refused(schema: Any) -> None:
    try:
        made(schema)
    except UnsupportedSchemaError:
        return
