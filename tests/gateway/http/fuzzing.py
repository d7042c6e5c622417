"""Random requests made from the OpenAPI document, and boundary values put into every parameter."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from gateway.http.fields import Body
from gateway.http.schema import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from tests.waiting import HANG_S


class Raw(str):
    """JSON as it goes on the wire: what no Python value can be written as."""


def nested(depth: int, opening: str, closing: str) -> Raw:
    return Raw(opening * depth + "1" + closing * depth)


#: The edges of every number that somebody on the way may store; one each for a quick look.
INTEGERS = [0, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 10**40]
MORE_INTEGERS = [1, 2, 2**31 - 1, -(2**31), 2**32, 2**53, -(2**63) - 1, 2**64 - 1]
FLOATS = [Raw("1e400"), Raw("-0.0"), 5e-324, 5.0, Raw("5E0")]
MORE_FLOATS = [1e-45, 1e-7, 3.5e38, 1.7e308, -1e308, 0.999999999, 2.0000001, 1e16, 2.0**63, Raw("NaN")]
STRINGS = [Raw('"\\ud800"'), "", "\x00", "<|endoftext|>{{ 7*7 }}"]
MORE_STRINGS = [Raw('"\\udfff\\ud800"'), "\U0010ffff", "\u202e", "a" * 100_000, "\r\n\r\n"]
DEEP = [nested(250, "[", "]"), nested(900, '{"a":', "}"), nested(100_000, "[", "]")]
OTHERS: list[Any] = [None, True, [], {}, [None]]

QUICK: list[Any] = [*INTEGERS, *FLOATS, *STRINGS, *DEEP, *OTHERS]
RARE: list[Any] = [*MORE_INTEGERS, *MORE_FLOATS, *MORE_STRINGS]
ALL: list[Any] = [*QUICK, *RARE]

MESSAGE = {"role": "user", "content": "tell me about the sea"}
BODIES: dict[str, tuple[type[Body], dict[str, Any]]] = {
    "/v1/chat/completions": (ChatRequest, {"messages": [MESSAGE], "max_tokens": 2}),
    "/v1/completions": (CompletionRequest, {"prompt": "tell me about the sea", "max_tokens": 2}),
    "/tokenize": (TokenizeRequest, {"prompt": "tell me"}),
    "/detokenize": (DetokenizeRequest, {"tokens": [1]}),
}
CALLING = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
PLACE = "\0here"


def tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


#: Where values go that are not a parameter's whole value, and what they meet there.
NESTED: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": PLACE}}}},
    {"logit_bias": {"5": PLACE}},
    {"stop": [PLACE], "stream": True},
    {"stop_token_ids": [PLACE]},
    {"seed": PLACE, "temperature": 1.0, "n": 2},
    {"temperature": PLACE, "seed": 1},
    {"repetition_penalty": PLACE, "temperature": 1.0, "stream": True},
    {"min_tokens": PLACE, "logprobs": True},
    {"stream_options": {"include_usage": PLACE}, "stream": True},
    {"cache_salt": PLACE, "priority": -(2**31)},
]
NESTED_CHAT: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": PLACE}]},
    {"messages": [{"role": PLACE, "content": "x"}]},
    {"messages": [MESSAGE | {"name": PLACE}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": PLACE}]}]},
    {"chat_template_kwargs": {"x": PLACE}},
    {"messages": [MESSAGE, CALLING | {"content": PLACE}, {"role": "tool", "tool_call_id": PLACE, "content": "x"}]},
    {"messages": [MESSAGE, CALLING, {"role": "tool", "tool_call_id": "1", "content": PLACE}]},
    {"tools": [{"type": "function", "function": {"name": PLACE}}], "tool_choice": "required"},
    {"tools": [tool({"a": PLACE})], "tool_choice": "required"},
    {"tools": [tool({"properties": {"a": PLACE}})], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tools": [tool({})], "tool_choice": PLACE, "stream": True},
    {"top_logprobs": PLACE, "logprobs": True, "stream": True},
]
NESTED_COMPLETION: list[dict[str, Any]] = [
    {"prompt": [PLACE]},
    {"prompt": [[1, PLACE]]},
    {"prompt": PLACE, "echo": True, "logprobs": 1},
]


def written(value: Any) -> str:
    """As JSON; surrogates alone, numbers and depths beyond what readers take included."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{written(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def placed(shape: Any, value: Any) -> Any:
    if shape == PLACE:
        return value
    if isinstance(shape, dict):
        return {key: placed(entry, value) for key, entry in shape.items()}
    return [placed(entry, value) for entry in shape] if isinstance(shape, list) else shape


@dataclass
class Tally:
    """`faults` names each body that was answered with 5xx, or as a stream that broke."""

    statuses: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, path: str, parameters: dict[str, Any], reply: httpx.Response) -> None:
        self.statuses[reply.status_code] = self.statuses.get(reply.status_code, 0) + 1
        stream = reply.headers.get("content-type", "").startswith("text/event-stream")
        if reply.status_code >= 500 or (stream and not reply.text.endswith("data: [DONE]\n\n")):
            self.faults.append(f"{path} {written(parameters)[:120]}: {reply.status_code} {reply.text[-200:]}")


def try_parameters(client: httpx.Client, path: str, values: list[Any]) -> Tally:
    """Every parameter of one endpoint with every value, all else as usual."""
    form, _ = BODIES[path]
    names = [info.alias or name for name, info in form.model_fields.items()]
    return _try(client, path, [{name: PLACE} for name in names], values)


def try_nested(client: httpx.Client, path: str, values: list[Any]) -> Tally:
    own = NESTED_CHAT if path == "/v1/chat/completions" else NESTED_COMPLETION
    return _try(client, path, NESTED + own, values)


def _try(client: httpx.Client, path: str, shapes: list[dict[str, Any]], values: list[Any]) -> Tally:
    usual = BODIES[path][1]
    tally = Tally()
    for shape in shapes:
        for value in values:
            parameters = placed(shape, value)
            if value is None and parameters.keys() & {"max_tokens", "max_completion_tokens"}:
                continue  # an answer as long as the window says nothing and takes seconds
            body = {**usual, **parameters}
            if "max_completion_tokens" in parameters:
                del body["max_tokens"]
            tally.add(path, parameters, client.post(path, content=written(body).encode()))
    return tally


def operations(url: str) -> Iterator[Any]:
    for result in schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=HANG_S).get_all_operations():
        operation: Any = result
        yield operation.ok()


def fuzz(operation: Any, mode: GenerationMode, examples: int, fixed: dict[str, Any]) -> list[int]:
    """Statuses of random requests. `fixed` replaces what must not be random to get anywhere, where it is given."""
    statuses: list[int] = []

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body.update({name: value for name, value in fixed.items() if name in case.body})
        reply = case.call(timeout=HANG_S)
        case.validate_response(reply, checks=(not_a_server_error,))
        statuses.append(reply.status_code)

    attempt()
    return statuses
