"""Chat completions through the official client, every parameter, streaming and not.

Nothing here depends on what the model says, so it runs against real and simulated engines alike.
"""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

MESSAGES: Any = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Write a few words about rivers, mountains and the sea, please."},
]


@pytest.fixture
def chat(client: OpenAI, model: str) -> Callable[..., ChatCompletion]:
    def ask(**parameters: Any) -> ChatCompletion:
        merged = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, **parameters}
        answer: ChatCompletion = client.chat.completions.create(model=model, **merged)
        return answer

    return ask


@pytest.fixture
def stream(client: OpenAI, model: str) -> Callable[..., list[ChatCompletionChunk]]:
    def ask(**parameters: Any) -> list[ChatCompletionChunk]:
        merged = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0, **parameters}
        return list(client.chat.completions.create(model=model, stream=True, **merged))

    return ask


Chat = Callable[..., ChatCompletion]
Stream = Callable[..., list[ChatCompletionChunk]]


def text_of(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def test_an_answer_is_complete_and_accounted_for(chat: Chat) -> None:
    answer = chat()
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens is not None


def test_a_stream_says_the_same_as_the_whole_answer(chat: Chat, stream: Stream) -> None:
    answer = chat()
    chunks = stream(stream_options={"include_usage": True})
    assert text_of(chunks) == answer.choices[0].message.content
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert [choice.delta.role for chunk in chunks for choice in chunk.choices if choice.delta.role] == ["assistant"]
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert ends == [answer.choices[0].finish_reason]
    assert chunks[-1].usage is not None
    assert answer.usage is not None
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_no_usage_chunk_unless_asked_for(stream: Stream) -> None:
    assert all(chunk.choices and chunk.usage is None for chunk in stream())


def test_usage_in_every_chunk(stream: Stream) -> None:
    chunks = stream(stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
    assert counts == sorted(counts)
    assert len(counts) >= len(chunks) - 1


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_limits_bind(client: OpenAI, model: str, name: str) -> None:
    limit: Any = {name: 5}
    answer = client.chat.completions.create(model=model, messages=MESSAGES, extra_body={"ignore_eos": True}, **limit)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"


def test_a_single_token(chat: Chat, stream: Stream) -> None:
    answer = chat(max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1
    assert text_of(stream(max_tokens=1)) == answer.choices[0].message.content


def test_min_tokens_and_ignore_eos(chat: Chat) -> None:
    for extra in ({"min_tokens": 12}, {"ignore_eos": True}, {"min_tokens": 6, "ignore_eos": True}):
        answer = chat(max_tokens=24, extra_body=extra)
        assert answer.usage is not None
        wanted = 24 if "ignore_eos" in extra else extra["min_tokens"]
        assert answer.usage.completion_tokens >= wanted


def test_several_choices(chat: Chat, stream: Stream) -> None:
    answer = chat(n=3, temperature=0.8, extra_body={"ignore_eos": True})
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 36
    chunks = stream(n=3, stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1, 2}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 36
    roles = [choice.index for chunk in chunks for choice in chunk.choices if choice.delta.role]
    assert sorted(roles) == [0, 1, 2]


def test_stop_strings_are_matched_and_never_shown(chat: Chat, stream: Stream) -> None:
    whole = chat(max_tokens=40, extra_body={"ignore_eos": True}).choices[0].message.content or ""
    stop = next(whole[at : at + 3] for at in range(4, len(whole) - 3) if "\ufffd" not in whole[at : at + 3])
    before = whole[: whole.index(stop)]
    answer = chat(max_tokens=40, stop=[stop, "never said by anyone"], extra_body={"ignore_eos": True})
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (before, "stop")
    assert answer.choices[0].model_extra is not None
    assert answer.choices[0].model_extra["stop_reason"] == stop
    chunks = stream(max_tokens=40, stop=stop, extra_body={"ignore_eos": True})
    assert text_of(chunks) == before
    kept = chat(max_tokens=40, stop=stop, extra_body={"ignore_eos": True, "include_stop_str_in_output": True})
    assert kept.choices[0].message.content == before + stop


def test_stop_token_ids_end_the_answer(chat: Chat) -> None:
    asked: dict[str, Any] = {"ignore_eos": True, "return_token_ids": True}
    whole = chat(max_tokens=20, extra_body=asked).choices[0]
    assert whole.model_extra is not None
    tokens = whole.model_extra["token_ids"]
    stop = tokens[5]
    answer = chat(max_tokens=20, extra_body={**asked, "stop_token_ids": [stop]})
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].model_extra is not None
    assert answer.choices[0].model_extra["token_ids"] == tokens[: tokens.index(stop) + 1]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == tokens.index(stop) + 1


def test_a_seed_repeats_a_sampled_answer(chat: Chat) -> None:
    sampled: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "max_tokens": 16, "extra_body": {"ignore_eos": True}}
    answers = [chat(seed=seed, **sampled).choices[0].message.content for seed in (7, 7, 8)]
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.7, "top_p": 0.9},
        {"presence_penalty": 0.5, "frequency_penalty": -0.5},
        {"extra_body": {"top_k": 20, "min_p": 0.05}},
        {"extra_body": {"top_k": -1, "repetition_penalty": 1.1}},
        {"user": "someone"},
        {"extra_body": {"priority": 3}},
        {"extra_body": {"cache_salt": "pepper"}},
        {"extra_body": {"skip_special_tokens": False}},
        {"extra_body": {"add_generation_prompt": False}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"metadata": {"k": "v"}, "store": False, "service_tier": "auto"},
        {"tool_choice": "none", "tools": []},
        {"response_format": {"type": "text"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("streaming", [False, True])
def test_parameters_are_accepted(chat: Chat, stream: Stream, parameters: Any, streaming: bool) -> None:
    if streaming:
        assert stream(**parameters)[-1].choices[0].finish_reason in ("stop", "length")
    else:
        assert chat(**parameters).choices[0].finish_reason in ("stop", "length")


def test_logit_bias_can_force_a_token(chat: Chat) -> None:
    asked: dict[str, Any] = {"ignore_eos": True, "return_token_ids": True}
    found = chat(max_tokens=8, extra_body=asked).choices[0].model_extra
    assert found is not None
    token = min(token for token in found["token_ids"] if token < 128 or token > 300)
    forced = chat(max_tokens=4, logit_bias={str(token): 100}, extra_body=asked).choices[0].model_extra
    assert forced is not None
    assert forced["token_ids"] == [token] * 4


def test_logprobs_are_as_many_as_tokens(chat: Chat, stream: Stream) -> None:
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 3, "extra_body": {"ignore_eos": True}}
    answer = chat(**asked)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 12
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in logprobs.content)
    spelled = b"".join(bytes(entry.bytes or ()) for entry in logprobs.content).decode(errors="replace")
    assert spelled.strip() == (answer.choices[0].message.content or "").strip()
    chunks = stream(**asked)
    entries = [
        entry
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs and choice.logprobs.content
        for entry in choice.logprobs.content
    ]
    assert [entry.token for entry in entries] == [entry.token for entry in logprobs.content]


def test_logprobs_without_alternatives(chat: Chat) -> None:
    logprobs = chat(logprobs=True).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert all(entry.top_logprobs == [] for entry in logprobs.content)


def test_prompt_logprobs(chat: Chat) -> None:
    answer = chat(extra_body={"prompt_logprobs": 1})
    assert answer.model_extra is not None
    assert answer.usage is not None
    found = answer.model_extra["prompt_logprobs"]
    assert len(found) == answer.usage.prompt_tokens
    assert found[0] is None
    assert all(found[1:])


def test_a_json_object(chat: Chat) -> None:
    answer = chat(response_format={"type": "json_object"}, max_tokens=400)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}


def test_a_json_schema(chat: Chat, stream: Stream) -> None:
    """An enum leaves no room for endless whitespace, so even a model of random weights must finish."""
    wanted = schema_format({"enum": ["Paris", "Rome"]})
    answer = chat(response_format=wanted, max_tokens=40)
    assert answer.choices[0].finish_reason == "stop"
    assert json.loads(answer.choices[0].message.content or "") in ("Paris", "Rome")
    assert json.loads(text_of(stream(response_format=wanted, max_tokens=40))) in ("Paris", "Rome")


def test_a_json_schema_of_an_object(chat: Chat) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "large": {"type": "boolean"}},
        "required": ["city", "large"],
        "additionalProperties": False,
    }
    choice = chat(response_format=schema_format(schema), max_tokens=100).choices[0]
    text = choice.message.content or ""
    assert text.lstrip().startswith("{")
    if choice.finish_reason == "stop":
        assert json.loads(text)["city"] in ("Paris", "Rome")


def test_text_parts_roles_and_names(chat: Chat) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "日本語と絵文字 😀 を続けてください"},
    ]
    assert chat(messages=messages).choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize(
    ("parameters", "param", "code"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
            "messages[0].content[0].type",
            "unsupported_parameter",
        ),
        ({"max_tokens": 0}, "max_tokens", "invalid_request"),
        ({"max_tokens": 10_000_000}, "max_tokens", "context_length_exceeded"),
        ({"n": 100_000}, "n", "invalid_request"),
        ({"temperature": "warm"}, "temperature", "invalid_request"),
        ({"extra_body": {"kv_transfer_params": {"remote_host": "10.0.0.1"}}}, "kv_transfer_params", "invalid_request"),
        ({"extra_body": {"no_such_thing": 1}}, "no_such_thing", "invalid_request"),
        ({"messages": [{"role": "user", "content": "many words " * 200_000}]}, "messages", "context_length_exceeded"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_bad_requests_raise_the_clients_own_error(
    client: OpenAI, model: str, parameters: Any, param: str, code: str, streaming: bool
) -> None:
    merged = {"messages": MESSAGES, **parameters}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, stream=streaming, **merged)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert caught.value.code == "model_not_found"


def test_answers_carry_their_request_id_and_path(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=MESSAGES, max_tokens=4, extra_headers={"X-Request-Id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["x-tandem-request-id"] in raw.parse().id
    assert raw.headers["x-tandem-path"] in ("remote", "local", "colocated")
    assert "ttft;dur=" in raw.headers["server-timing"]
