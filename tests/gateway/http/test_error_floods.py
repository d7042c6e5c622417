"""A body of many faults costs no more than its first: an error is a thousand times dearer than its input."""

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.http.body import parse
from gateway.http.fields import Body
from gateway.http.schema import ChatRequest, CompletionRequest, TokenizeRequest
from gateway.request.errors import RequestError

MANY = 5_000
USER = {"role": "user", "content": "x"}
KEYS = {f"key{at}": 1 for at in range(MANY)}
FLOODS: list[tuple[type[Body], dict[str, Any]]] = [
    (CompletionRequest, {"prompt": "x", **KEYS}),
    (CompletionRequest, {"prompt": "x", "stop": [1] * MANY}),
    (CompletionRequest, {"prompt": "x", "stop_token_ids": [-1] * MANY}),
    (CompletionRequest, {"prompt": "x", "logit_bias": dict.fromkeys(KEYS, "x")}),
    (CompletionRequest, {"prompt": "x", "stream_options": KEYS}),
    (CompletionRequest, {"prompt": "x", "response_format": {"type": "text", **KEYS}}),
    (CompletionRequest, {"prompt": "x", "response_format": {"type": "text", "json_schema": {"schema": {}, **KEYS}}}),
    (CompletionRequest, {"prompt": [1.5] * MANY}),
    (CompletionRequest, {"prompt": [[1], [1.5]] * MANY}),
    (ChatRequest, {"messages": [1] * MANY}),
    (ChatRequest, {"messages": [{}] * MANY}),
    (ChatRequest, {"messages": [USER | KEYS]}),
    (ChatRequest, {"messages": [USER | {"content": [1] * MANY}]}),
    (ChatRequest, {"messages": [USER | {"content": [{"type": "text", "text": "x", **KEYS}]}]}),
    (ChatRequest, {"messages": [USER], "modalities": ["audio"] * MANY}),
    (TokenizeRequest, {"messages": [1] * MANY}),
]


@pytest.mark.parametrize(("form", "body"), FLOODS, ids=lambda value: str(value)[:60])
def test_few_errors_whatever_the_number_of_faults(form: type[Body], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        form.model_validate(body)
    assert caught.value.error_count() <= 4


def test_the_first_unknown_key_is_named_where_it_stands() -> None:
    with pytest.raises(RequestError, match=r"`messages\[0\]\.key0`"):
        parse(
            b'{"messages": [{"role": "user", "content": "x", "key0": 1, "a": 1, "b": 1, "c": 1, "d": 1}]}', ChatRequest
        )
    with pytest.raises(RequestError, match="Did you mean `temperature`"):
        parse(b'{"prompt": "x", "temprature": 1}', CompletionRequest)


def test_a_schema_under_its_alias_is_known() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "", "description": "", "schema": {}, "strict": True}}
    body = CompletionRequest.model_validate({"prompt": "x", "response_format": shape})
    assert body.response_format is not None
    assert body.response_format.json_schema is not None
