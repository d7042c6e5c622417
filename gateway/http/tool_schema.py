"""JSON schemas of tool calls, for answers that must be some."""

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.http.grammar import grammar
from gateway.http.tools import Tool
from proto.sampling import StructuredOutput

#: Deeper schemas than this are nobody's tools, and templates and grammars walk them on the stack.
MAX_DEPTH = 64


def check_parameters(parameters: dict[str, Any] | None) -> str:
    """What is wrong with the schema of a function's arguments as such, or nothing; the engine reads the rest of it."""
    if parameters is None:
        return ""
    if parameters.get("type", "object") != "object":
        return "must be the schema of an object"
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(entry, dict | bool) for entry in properties.values()):
        return "must have a schema for each of its properties"
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return "must name its required properties in a list"
    for depth, node in _nodes(parameters):
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} levels deep"
        reference = node.get("$ref", "#") if isinstance(node, dict) else "#"
        if isinstance(reference, str) and not reference.startswith("#"):
            return "has a reference to another document"
        if not isinstance(reference, str | dict | bool):  # of a property with that name it is a schema
            return "has a `$ref` that is not text"
    return ""


def _nodes(schema: object) -> Iterator[tuple[int, object]]:
    left: list[tuple[int, object]] = [(1, schema)]
    while left:
        depth, node = left.pop()
        yield depth, node
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        left.extend((depth + 1, one) for one in inner)


def arguments_schema(tool: Tool) -> StructuredOutput:
    """The answer is the arguments of this function."""
    return grammar(_parameters(tool), "tools")


def list_schema(tools: Sequence[Tool], *, single: bool) -> StructuredOutput:
    """The answer is a list of calls, each with the name first: a reader knows the function before its arguments."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "parameters": {"$ref": f"#/$defs/{_key(at)}"}},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for at, tool in enumerate(tools)
    ]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": calls},
        "$defs": {_key(at): _moved(_parameters(tool), f"#/$defs/{_key(at)}") for at, tool in enumerate(tools)},
    }
    return grammar({**schema, "maxItems": 1} if single else schema, "tools")


def _key(at: int) -> str:
    return f"tool{at}"


def _parameters(tool: Tool) -> dict[str, Any]:
    return {"type": "object", "properties": {}, **(tool.function.parameters or {})}


def _moved(node: Any, root: str) -> Any:
    """The schema with its references as they are from where it is put."""
    if isinstance(node, list):
        return [_moved(one, root) for one in node]
    if not isinstance(node, dict):
        return node
    moved = {name: _moved(one, root) for name, one in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):  # not the name of an anchor
        moved["$ref"] = root + reference.removeprefix("#")
    return moved
