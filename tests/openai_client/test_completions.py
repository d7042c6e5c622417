"""Plain completions, models and tokens through the official client. Independent of what the model says."""

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Completion

PROMPT = "Once upon a time there was a river that ran from the mountains down to the"


@pytest.fixture
def complete(client: OpenAI, model: str) -> Callable[..., Completion]:
    def ask(prompt: Any = PROMPT, **parameters: Any) -> Completion:
        merged = {"max_tokens": 10, "temperature": 0, **parameters}
        answer: Completion = client.completions.create(model=model, prompt=prompt, **merged)
        return answer

    return ask


@pytest.fixture
def stream(client: OpenAI, model: str) -> Callable[..., list[Completion]]:
    def ask(prompt: Any = PROMPT, **parameters: Any) -> list[Completion]:
        merged = {"max_tokens": 10, "temperature": 0, **parameters}
        return list(client.completions.create(model=model, prompt=prompt, stream=True, **merged))

    return ask


@pytest.fixture
def tokens(plain: httpx.Client) -> Callable[[str], list[int]]:
    def of(text: str) -> list[int]:
        found: list[int] = plain.post("/tokenize", json={"prompt": text}).raise_for_status().json()["tokens"]
        return found

    return of


Complete = Callable[..., Completion]
Stream = Callable[..., list[Completion]]
Tokens = Callable[[str], list[int]]


def text_of(chunks: list[Completion], index: int = 0) -> str:
    return "".join(choice.text for chunk in chunks for choice in chunk.choices if choice.index == index)


def test_text_and_its_tokens_are_the_same_prompt(complete: Complete, tokens: Tokens) -> None:
    by_text, by_tokens = complete(), complete(tokens(PROMPT))
    assert by_text.choices[0].text == by_tokens.choices[0].text
    assert by_text.usage is not None
    assert by_text.usage.prompt_tokens == len(tokens(PROMPT))


def test_a_stream_says_the_same_as_the_whole_answer(complete: Complete, stream: Stream) -> None:
    chunks = stream(stream_options={"include_usage": True})
    assert text_of(chunks) == complete().choices[0].text
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert chunks[-1].usage is not None
    assert 1 <= chunks[-1].usage.completion_tokens <= 10


@pytest.mark.parametrize("as_tokens", [False, True])
def test_lists_of_prompts_are_answered_in_order(
    complete: Complete, stream: Stream, tokens: Tokens, as_tokens: bool
) -> None:
    texts = [PROMPT, "The capital of France is the city of", "1, 2, 3, 4, 5, 6, 7, 8, 9,"]
    prompts = [tokens(text) for text in texts] if as_tokens else texts
    alone = [complete(text).choices[0].text for text in texts]
    together = complete(prompts)
    assert [choice.text for choice in together.choices] == alone
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    chunks = stream(prompts)
    assert [text_of(chunks, index) for index in range(3)] == alone


def test_several_answers_to_several_prompts(complete: Complete) -> None:
    answer = complete([PROMPT, "Another beginning"], n=2, extra_body={"ignore_eos": True})
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 40


@pytest.mark.parametrize("streaming", [False, True])
def test_echo_repeats_the_prompt(complete: Complete, stream: Stream, streaming: bool) -> None:
    answer = complete().choices[0].text
    echoed = text_of(stream(echo=True)) if streaming else complete(echo=True).choices[0].text
    assert echoed == PROMPT + answer


def test_logprobs_are_parallel_to_the_tokens(complete: Complete, stream: Stream) -> None:
    answer = complete(logprobs=2, extra_body={"ignore_eos": True})
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 10
    assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs)
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    chunks = stream(logprobs=2, extra_body={"ignore_eos": True})
    streamed = [token for c in chunks for o in c.choices if o.logprobs for token in o.logprobs.tokens or ()]
    assert streamed == logprobs.tokens


def test_echo_with_logprobs_covers_the_prompt(complete: Complete, tokens: Tokens) -> None:
    logprobs = complete(echo=True, logprobs=1, extra_body={"ignore_eos": True}).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert len(logprobs.token_logprobs) == len(tokens(PROMPT)) + 10
    assert logprobs.token_logprobs[0] is None
    assert all(value is not None for value in logprobs.token_logprobs[1:])


def test_prompt_logprobs(complete: Complete, tokens: Tokens) -> None:
    extra = complete(extra_body={"prompt_logprobs": 1}).choices[0].model_extra
    assert extra is not None
    assert len(extra["prompt_logprobs"]) == len(tokens(PROMPT))
    assert extra["prompt_logprobs"][0] is None


def test_a_prompt_of_one_token(complete: Complete, tokens: Tokens) -> None:
    answer = complete([tokens("river")[-1]], max_tokens=3, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 3)


def test_a_repeated_prompt_is_cached_and_never_wholly(complete: Complete) -> None:
    long = "A story that is told twice, word for word, to the same people. " * 24
    complete(long)
    usage = complete(long).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    cached = usage.prompt_tokens_details.cached_tokens or 0
    assert 0 < cached < usage.prompt_tokens


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.7, "top_p": 0.9, "seed": 3},
        {"presence_penalty": 0.5, "frequency_penalty": 0.5},
        {"extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "min_tokens": 2}},
        {"extra_body": {"add_special_tokens": False}},
        {"extra_body": {"response_format": {"type": "json_object"}}},
        {"best_of": 1, "user": "u", "stop": ["\n\n\n"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("streaming", [False, True])
def test_parameters_are_accepted(complete: Complete, stream: Stream, parameters: Any, streaming: bool) -> None:
    if streaming:
        assert stream(**parameters)[-1].choices[0].finish_reason in ("stop", "length")
    else:
        assert complete(**parameters).choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize(
    ("prompt", "parameters", "param"),
    [
        ("", {}, "prompt"),
        ([], {}, "prompt"),
        ([[]], {}, "prompt"),
        ([10_000_000], {}, "prompt"),
        (PROMPT, {"best_of": 3}, "best_of"),
        (PROMPT, {"suffix": "the end"}, "suffix"),
        (PROMPT, {"logprobs": 100}, "logprobs"),
        (["x"] * 1000, {}, "prompt"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_requests_raise_the_clients_own_error(complete: Complete, prompt: Any, parameters: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(prompt, **parameters)
    assert caught.value.param == param


def test_models_are_listed_and_found(client: OpenAI, model: str) -> None:
    assert [entry.id for entry in client.models.list()] == [model]
    found = client.models.retrieve(model)
    assert (found.id, found.object) == (model, "model")
    assert found.model_extra is not None
    assert found.model_extra["max_model_len"] > 0
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_tokens_round_trip(plain: httpx.Client) -> None:
    text = "naïve 日本語 😀 and plain words"
    body = {"prompt": text, "add_special_tokens": False}
    found = plain.post("/tokenize", json=body).raise_for_status().json()
    assert found["count"] == len(found["tokens"])
    back = plain.post("/detokenize", json={"tokens": found["tokens"]}).raise_for_status().json()
    assert back["prompt"] == text


def test_a_chat_prompt_has_as_many_tokens_as_it_is_charged(plain: httpx.Client, client: OpenAI, model: str) -> None:
    messages: Any = [{"role": "user", "content": "Count me."}]
    count = plain.post("/tokenize", json={"messages": messages}).raise_for_status().json()["count"]
    usage = client.chat.completions.create(model=model, messages=messages, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens == count


def test_nothing_is_held_when_nobody_asks(plain: httpx.Client) -> None:
    status = plain.get("/tandem/v1/status").raise_for_status().json()
    held = status["integrity"]
    assert not any(held[name] for name in ("requests", "queued", "reservations", "prefills", "tickets", "sequences"))
    assert held["overdue"] == []
