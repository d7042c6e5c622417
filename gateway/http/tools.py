"""Tools that a client offers to the model, and which of them it must or may call."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gateway.http.fields import Body

MAX_TOOLS = 128


class FunctionTool(Body):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of an object.")
    strict: bool | None = Field(None, description="Accepted and not used: see `tool_choice`.")


class Tool(Body):
    type: Literal["function"]
    function: FunctionTool


@dataclass(frozen=True, slots=True)
class NamedChoice:
    name: str


def _tool_choice(value: object) -> object:
    match value:
        case None | "none" | "auto" | "required":
            return value
        case {"type": "function", "function": {"name": str(name), **more}, **others} if not (more or others):
            return NamedChoice(name)
    raise ValueError("must be 'none', 'auto', 'required' or {'type': 'function', 'function': {'name': ...}}")


_CHOICE_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "required": ["type", "function"],
            "properties": {
                "type": {"const": "function"},
                "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
        },
        {"type": "null"},
    ]
}
ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedChoice | None,
    PlainValidator(_tool_choice),
    WithJsonSchema(_CHOICE_SCHEMA),
]

Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]
