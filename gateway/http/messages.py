"""The messages of a conversation, as clients send them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from gateway.http.fields import AnyCount, Body, Items


class TextPart(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str = Field(min_length=1, max_length=256)
    arguments: str = Field(description="JSON, as the model wrote it.")


class ToolCall(Body):
    id: str = Field(min_length=1, max_length=256)
    type: Literal["function"]
    function: FunctionCall
    index: AnyCount | None = Field(None, description="As in streams; not used.")


#: What the fields of a message cannot say one by one.
_BY_ROLE: dict[str, Any] = {
    "oneOf": [
        {
            "properties": {
                "role": {"enum": ["system", "developer", "user"]},
                "content": {"not": {"type": "null"}},
                "tool_calls": {"type": "null"},
                "tool_call_id": {"type": "null"},
            },
            "required": ["content"],
        },
        {
            "properties": {
                "role": {"const": "assistant"},
                "tool_call_id": {"type": "null"},
            },
            "anyOf": [
                {"properties": {"content": {"not": {"type": "null"}}}, "required": ["content"]},
                {"properties": {"tool_calls": {"type": "array", "minItems": 1}}, "required": ["tool_calls"]},
                {"properties": {"reasoning": {"type": "string", "minLength": 1}}, "required": ["reasoning"]},
                {
                    "properties": {"reasoning_content": {"type": "string", "minLength": 1}},
                    "required": ["reasoning_content"],
                },
            ],
        },
        {
            "properties": {
                "role": {"const": "tool"},
                "content": {"not": {"type": "null"}},
                "tool_calls": {"type": "null"},
                "tool_call_id": {"type": "string", "minLength": 1},
            },
            "required": ["content", "tool_call_id"],
        },
    ]
}


class ChatMessage(Body):
    model_config = ConfigDict(json_schema_extra=_BY_ROLE)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    name: str | None = Field(None, max_length=256)
    tool_calls: Items[ToolCall] | None = Field(None, description="Of an assistant message.")
    tool_call_id: Annotated[str, Field(max_length=256)] | None = Field(
        None, validate_default=True, description="Of a tool message: the call that it answers."
    )
    reasoning_content: str | None = None
    reasoning: str | None = Field(None, description="The same under vLLM's name.")
    refusal: None = None
    audio: None = None
    function_call: None = None
    content: str | Items[TextPart] | None = Field(
        None,
        validate_default=True,
        description="May be left out of an assistant message with tool calls or reasoning.",
    )

    @field_validator("tool_calls")
    @classmethod
    def _assistants_call(cls, calls: object, info: ValidationInfo) -> object:
        if calls and info.data.get("role", "assistant") != "assistant":
            raise ValueError("is only of assistant messages")
        return calls

    @field_validator("tool_call_id")
    @classmethod
    def _tools_answer(cls, call_id: object, info: ValidationInfo) -> object:
        is_tool = info.data.get("role") == "tool"
        if is_tool and not call_id:
            raise ValueError("must be the id of the call that the tool answers")
        if call_id and not is_tool and "role" in info.data:
            raise ValueError("is only of tool messages")
        return call_id

    @field_validator("content")
    @classmethod
    def _says_something(cls, content: object, info: ValidationInfo) -> object:
        """Checked last, when the fields that may stand for it are known."""
        known = info.data
        spoke = known.get("role") == "assistant" and (known.get("tool_calls") or _thoughts(known))
        if content is None and not spoke:
            raise ValueError("must be a string or a list of text parts")
        return content

    @property
    def thoughts(self) -> str | None:
        return _thoughts(self.__dict__)

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join([part.text for part in content])


def _thoughts(message: Mapping[str, Any]) -> str | None:
    """An answer of this gateway, sent back, has both; the other one counts where one is empty."""
    given: str | None = message.get("reasoning_content")
    other: str | None = message.get("reasoning")
    return given or (given if other is None else other)
