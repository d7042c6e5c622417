"""The shortest JSON that a schema accepts, for structured output without a model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proto.sampling import StructuredKind, StructuredOutput

#: Values and padded characters of one answer. A few references, or a least length, ask for any number of them.
_MOST = 1 << 16


class UnsupportedSchemaError(ValueError):
    """The simulated engine cannot make a value for this schema."""


@dataclass(slots=True)
class _Root:
    """The whole schema, which references point into, and what may still be made of it."""

    schema: Any
    left: int = _MOST

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise UnsupportedSchemaError(f"its shortest value has more than {_MOST} parts")


def minimal_json(wanted: StructuredOutput) -> str:
    """Compact JSON text that satisfies the request."""
    if wanted.kind is StructuredKind.JSON_OBJECT:
        return "{}"
    try:
        schema = json.loads(wanted.json_schema)
    except ValueError as error:
        raise UnsupportedSchemaError(f"not JSON: {error}") from None
    try:
        value = _value(schema, _Root(schema), 0)
    except UnsupportedSchemaError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        # Words of a schema that are of another kind than they should be: of this request alone, whatever stumbles.
        raise UnsupportedSchemaError(f"not a schema ({error})") from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _value(schema: Any, root: _Root, depth: int) -> Any:
    root.spend(1)
    if depth > 32:
        raise UnsupportedSchemaError("the schema has no finite value within 32 levels")
    if schema is True or schema == {}:
        return None
    if not isinstance(schema, Mapping):
        raise UnsupportedSchemaError(f"not a schema: {schema!r}")
    if "$ref" in schema:
        return _value(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _first(schema[key], root, depth)
    if "allOf" in schema:
        return _value(_merged(schema, root), root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: _Root, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = kind[0]
    match kind:
        case "object":
            properties = schema.get("properties", {})
            # Declared properties are all made, as constrained decoding does for strict schemas.
            names = [*properties, *(name for name in schema.get("required", ()) if name not in properties)]
            return {name: _value(properties.get(name, True), root, depth + 1) for name in names}
        case "array":
            count = int(schema.get("minItems", 0))
            prefix = schema.get("prefixItems", ())
            items = [_value(item, root, depth + 1) for item in prefix[:count]]
            return items + _repeated(schema.get("items", True), root, depth, count - len(items))
        case "string":
            root.spend(_least_length(schema))
            return _string(schema)
        case "integer" | "number":
            return _number(schema, kind)
        case "boolean":
            return False
        case "null" | None:
            return None
    raise UnsupportedSchemaError(f"unknown type {kind!r}")


def _repeated(schema: Any, root: _Root, depth: int, count: int) -> list[Any]:
    if count <= 0:
        return []
    before = root.left
    item = _value(schema, root, depth + 1)
    root.spend((before - root.left) * (count - 1))
    return [item] * count


def _least_length(schema: Mapping[str, Any]) -> int:
    return int(schema.get("minLength", 0))


def _string(schema: Mapping[str, Any]) -> str:
    if "pattern" in schema:
        raise UnsupportedSchemaError("the simulated engine cannot make a string for a `pattern`")
    known = {
        "date": "2000-01-01",
        "time": "00:00:00Z",
        "date-time": "2000-01-01T00:00:00Z",
        "email": "a@b.cd",
        "uuid": "00000000-0000-4000-8000-000000000000",
        "ipv4": "0.0.0.0",
        "uri": "a:b",
    }
    return known.get(str(schema.get("format")), "x" * _least_length(schema))


def _number(schema: Mapping[str, Any], kind: str) -> float | int:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    value = 0
    if low is not None and (low > 0 or ("exclusiveMinimum" in schema and low == 0)):
        value = -(-low // step) * step
        value += step if value <= low and "exclusiveMinimum" in schema else 0
    elif high is not None and (high < 0 or ("exclusiveMaximum" in schema and high == 0)):
        value = high // step * step
        value -= step if value >= high and "exclusiveMaximum" in schema else 0
    if (high is not None and value > high) or (low is not None and value < low):
        raise UnsupportedSchemaError(f"no multiple of {step} between {low} and {high}")
    return int(value) if kind == "integer" or value == int(value) else value


def _first(choices: Sequence[Any], root: _Root, depth: int) -> Any:
    for choice in choices:
        try:
            return _value(choice, root, depth + 1)
        except UnsupportedSchemaError as error:
            last = error
    raise last if choices else UnsupportedSchemaError("an empty choice")


def _merged(schema: Mapping[str, Any], root: _Root) -> dict[str, Any]:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        part = _resolve(part["$ref"], root) if "$ref" in part else part
        for key, value in part.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            else:
                merged[key] = value
    return merged


def _resolve(reference: str, root: _Root) -> Any:
    if not reference.startswith("#"):
        raise UnsupportedSchemaError(f"only local references: {reference}")
    node = root.schema
    for part in reference.lstrip("#/").split("/") if reference != "#" else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            raise UnsupportedSchemaError(f"reference to nowhere: {reference}")
        node = node[key]
    return node
