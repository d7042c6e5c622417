"""Bodies that clients send, exactly typed."""

from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from gateway.http.fields import WHOLE, Alternatives, AnyCount, Body, Count, Finite, Items, TokenId, whole
from gateway.http.messages import ChatMessage
from gateway.http.tools import ToolChoice, Tools

INT64 = 2**63
MAX_BIASES = 1024


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchemaFormat(Body):
    name: str = Field("", max_length=256)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


def _few(value: object) -> object:
    if isinstance(value, dict) and len(value) > MAX_BIASES:
        raise ValueError(f"must have at most {MAX_BIASES} entries")
    return value


Biases = Annotated[dict[str, Annotated[Finite, Field(ge=-100, le=100)]], BeforeValidator(_few)]


class Common(Body):
    """What chat and plain completions share."""

    model: str | None = Field(None, description="Defaults to the model this gateway serves.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    min_tokens: AnyCount | None = None
    n: Count | None = None
    stop: str | Items[str] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=1024, fail_fast=True)] | None = None
    include_stop_str_in_output: bool | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=INT64), WHOLE] | None = None
    temperature: Finite | None = Field(None, ge=0, le=2)
    top_p: Finite | None = Field(None, gt=0, le=1)
    top_k: Annotated[int, Field(ge=-1, lt=2**31), WHOLE] | None = Field(
        None, description="0 and -1 consider every token."
    )
    min_p: Finite | None = Field(None, ge=0, le=1)
    presence_penalty: Finite | None = Field(None, ge=-2, le=2)
    frequency_penalty: Finite | None = Field(None, ge=-2, le=2)
    repetition_penalty: Finite | None = Field(None, gt=0, le=2)
    logit_bias: Biases | None = Field(None, max_length=MAX_BIASES)
    prompt_logprobs: Alternatives | None = None
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    user: str | None = Field(None, description="Accepted and not used.")
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31), WHOLE] | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=1024)
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    # Accepted because common clients send them; they change nothing here.
    metadata: dict[str, Any] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class ChatRequest(Common):
    messages: Items[ChatMessage] = Field(min_length=1)
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: Items[Literal["text"]] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = Field(None, description="false: an answer ends with its first call.")


def _whole_all(values: list[Any]) -> list[Any] | None:
    """The numbers as integers; None where one is none."""
    kinds = set(map(type, values))
    if kinds <= {int}:
        return values
    if not kinds <= {int, float}:
        return None
    numbers = list(map(whole, values))
    return numbers if set(map(type, numbers)) <= {int} else None


Prompt = str | list[str] | list[int] | list[list[int]]


def _prompt(value: object) -> object:
    """Checks by exact type in C loops: a union of lists would report one error a token."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("must be a string, a list of strings, a list of token ids, or a list of such lists; not empty")
    kinds = set(map(type, value))
    if kinds in ({str}, {int}):
        return value
    if kinds == {list} and all(value) and set(map(type, chain.from_iterable(value))) == {int}:
        return value
    if kinds <= {int, float} and (tokens := _whole_all(value)) is not None:
        return tokens
    if kinds == {list} and all(value) and None not in (lists := [_whole_all(tokens) for tokens in value]):
        return lists
    raise ValueError("must hold only strings, only token ids, or only non-empty lists of token ids")


_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        {
            "type": "array",
            "minItems": 1,
            "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        },
    ]
}
PromptField = Annotated[Prompt, PlainValidator(_prompt), WithJsonSchema(_PROMPT_SCHEMA)]


def _tokens(value: object) -> object:
    tokens = _whole_all(value) if isinstance(value, list) else None
    if tokens is None:
        raise ValueError("must be a list of token ids")
    return tokens


class CompletionRequest(Common):
    prompt: PromptField
    echo: bool | None = None
    logprobs: Alternatives | None = None
    add_special_tokens: bool | None = None


class TokenizeRequest(Body):
    """Either `prompt` or `messages`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]})

    model: str | None = None
    prompt: str | None = None
    messages: Items[ChatMessage] | None = Field(None, min_length=1)
    tools: Tools | None = None
    add_special_tokens: bool | None = Field(None, description="Default: true for prompt, false for messages.")
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    model: str | None = None
    tokens: Annotated[
        list[int],
        PlainValidator(_tokens),
        WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}}),
    ]
