"""Bad input is a clear 4xx that names the parameter, and no engine hears of it."""

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.request.intent import Intent
from tests.gateway.http.scripted import Batch, FakeCluster, says, site, worker_info
from tests.waiting import HANG_S, until

USER = [{"role": "user", "content": "x"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]
DEEP = functools.reduce(lambda inner, _: {"a": inner}, range(400), dict[str, Any]())
CHAT: list[tuple[dict[str, Any], str, str]] = [
    ({"max_tokens": 0}, "max_tokens", "invalid_request"),
    ({"max_tokens": 100_000}, "max_tokens", "context_length_exceeded"),
    ({"max_completion_tokens": 100_000}, "max_completion_tokens", "context_length_exceeded"),
    ({"max_tokens": "5"}, "max_tokens", "invalid_request"),
    ({"max_tokens": 5.5}, "max_tokens", "invalid_request"),
    ({"max_tokens": True}, "max_tokens", "invalid_request"),
    ({"min_tokens": 9, "max_tokens": 5}, "min_tokens", "invalid_request"),
    ({"n": 0}, "n", "invalid_request"),
    ({"n": 1_000_000}, "n", "invalid_request"),
    ({"n": 10**30}, "n", "invalid_request"),
    ({"temperature": "hot"}, "temperature", "invalid_request"),
    ({"temperature": -1}, "temperature", "invalid_request"),
    ({"top_p": 0}, "top_p", "invalid_request"),
    ({"top_k": -2}, "top_k", "invalid_request"),
    ({"seed": 2**63}, "seed", "invalid_request"),
    ({"stop": ""}, "stop", "invalid_request"),
    ({"stop": ["a", 1]}, "stop[1]", "invalid_request"),
    ({"stop": ["x"] * 65}, "stop", "invalid_request"),
    ({"stop_token_ids": [1000]}, "stop_token_ids", "invalid_request"),
    ({"logit_bias": {"one": 1}}, "logit_bias", "invalid_request"),
    ({"logit_bias": {"1000": 1}}, "logit_bias", "invalid_request"),
    ({"logit_bias": {"1": 101}}, "logit_bias", "invalid_request"),
    ({"logit_bias": {"1": "NaN"}}, "logit_bias", "invalid_request"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_request"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_request"),
    ({"logprobs": 3}, "logprobs", "invalid_request"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_request"),
    ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "unsupported_parameter"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_request"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_request"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}},
        "response_format",
        "invalid_request",
    ),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "invalid_request"),
    ({"messages": []}, "messages", "invalid_request"),
    ({"messages": "hi"}, "messages", "invalid_request"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_request"),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content", "invalid_request"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_request"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_request"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "unsupported_parameter"),
    ({"messages": IMAGE}, "messages[0].content[0].type", "unsupported_parameter"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_request"),
    ({"function_call": {"name": "f"}}, "function_call", "unsupported_parameter"),
    ({"functions": [{}]}, "functions", "unsupported_parameter"),
    ({"kv_transfer_params": {"do_remote_decode": True}}, "kv_transfer_params", "invalid_request"),
    ({"kv_transfer_params": None}, "kv_transfer_params", "invalid_request"),
    ({"remote_host": "10.0.0.1"}, "remote_host", "invalid_request"),
    ({"do_remote_prefill": False}, "do_remote_prefill", "invalid_request"),
    ({"emergency": True}, "emergency", "invalid_request"),  # what a worker is told of answers that leave another
    ({"generated_tokens": 4}, "generated_tokens", "invalid_request"),
    ({"temprature": 1}, "temprature", "invalid_request"),
    ({"model": 5}, "model", "invalid_request"),
    ({"model": "gpt-9"}, "model", "model_not_found"),
    ({"cache_salt": ""}, "cache_salt", "invalid_request"),
    ({"priority": 2**31}, "priority", "invalid_request"),
]


@pytest.mark.parametrize(("body", "param", "code"), CHAT, ids=lambda value: str(value)[:40])
async def test_bad_chat_requests(body: dict[str, Any], param: str, code: str) -> None:
    async with site(says("a")) as at:
        reply = await at.client.post("/v1/chat/completions", json={"model": "toy", "messages": USER, **body})
        assert not at.lifecycle.intents
        assert [record.phase.value for record in at.observer.records] == ["rejected"]
    error = reply.json()["error"]
    assert reply.status_code == (404 if code == "model_not_found" else 400)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert len(error["message"]) > 10


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": [[1], [2**40]]}, "prompt[1]"),
        ({"prompt": [2**70]}, "prompt"),
        ({"prompt": ["x"] * 17}, "prompt"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "echo": "yes"}, "echo"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": "x", "messages": USER}, "messages"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_completion_requests(body: dict[str, Any], param: str) -> None:
    async with site(says("a")) as at:
        reply = await at.client.post("/v1/completions", json={"model": "toy", **body})
        assert not at.lifecycle.intents
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"prompt": NaN}',
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\\ud800"}',
        b'{"temperature": 1e999, "prompt": "x"}',
        b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"\x00\x01\x02",
    ],
    ids=lambda body: repr(body[:24]),
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
async def test_malformed_bodies_are_400(body: bytes, path: str) -> None:
    async with site(says("a")) as at:
        reply = await at.client.post(path, content=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_request"


async def test_the_reason_is_in_the_head_too_for_proxies_that_keep_no_bodies() -> None:
    async with site(says("a"), settings={"max_body_bytes": 1000, "api_keys": {"acme": "k"}}) as at:
        at.client.headers["authorization"] = "Bearer k"
        replies = [await at.complete(n=50), await at.complete("x" * 2000), await at.complete()]
        replies.append(await at.client.post("/v1/completions", headers={"authorization": "Bearer no"}))
    reasons = [reply.headers.get("x-tandem-reason") for reply in replies]
    assert reasons == ["invalid_request", "invalid_request", None, "invalid_api_key"]


async def test_one_token_is_not_called_tokens() -> None:
    async with site(says("a"), cluster=FakeCluster(worker_info(64))) as at:
        reply = await at.complete([97], max_tokens=5000)
    assert "a prompt of 1 token exceed the model's window of 64 tokens" in reply.json()["error"]["message"]


async def test_b38_a_prompt_beyond_the_window_is_refused_with_the_numbers() -> None:
    async with site(says("a"), cluster=FakeCluster(worker_info(64))) as at:
        full = await at.complete([97] * 64)
        fits = await at.complete([97] * 63, max_tokens=1)
    error = full.json()["error"]
    assert (full.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["numbers"] == {"window": 64, "prompt_tokens": 64}
    assert fits.status_code == 200


async def test_a_body_over_the_limit_is_413_by_header_and_by_length() -> None:
    async with site(says("a"), settings={"max_body_bytes": 1000}) as at:
        declared = await at.complete("x" * 2000)

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * 100

        streamed = await at.client.post("/v1/completions", content=chunks())
    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert declared.json()["error"]["numbers"] == {"max_body_bytes": 1000}


async def test_a_body_that_never_arrives_is_408() -> None:
    async with site(says("a"), on_socket=True, settings={"deadlines": {"body_s": 0.1}}) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(at.url).port)
        writer.write(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{"prompt":')
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        writer.close()
    assert head.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_only_trickles_is_408_too() -> None:
    """Each part in time, and yet it would hold its connection for ever."""

    async def trickle(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async with site(says("a"), on_socket=True, settings={"deadlines": {"body_total_s": 0.2}}) as at:
        for path in ("/v1/completions", "/tokenize", "/tandem/v1/workers/w/drain"):
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(at.url).port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n".encode())
            trickling = asyncio.create_task(trickle(writer))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
            trickling.cancel()
            writer.close()
            assert head.startswith(b"HTTP/1.1 408 ")
        assert at.surface.intake.held == 0


async def test_bodies_together_are_bounded_and_what_they_held_comes_free() -> None:
    going_on = asyncio.Event()

    async def slow() -> Any:
        yield b'{"prompt": "' + b"x" * 700
        await going_on.wait()
        yield b'"}'

    async with site(says("a"), on_socket=True, settings={"max_bodies_bytes": 1000}) as at:
        first = asyncio.create_task(at.client.post("/v1/completions", content=slow()))
        await until(lambda: at.surface.intake.held >= 700)
        refused = [await at.complete("y" * 400), await at.client.post("/tokenize", json={"prompt": "y" * 400})]
        small = await at.complete("y")
        going_on.set()
        done = await first
        after = await at.complete("y" * 400)
        held = at.surface.intake.held
    for reply in refused:
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, "queue_full")
        assert reply.json()["error"]["numbers"]["max_bodies_bytes"] == 1000
        assert "retry-after" in reply.headers
    assert (small.status_code, done.status_code, after.status_code) == (200, 200, 200)
    assert held == 0


async def test_a_body_counts_until_its_prompt_is_tokens_and_no_longer() -> None:
    held: list[int] = []
    reached, going_on = asyncio.Event(), asyncio.Event()

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        held.append(at.surface.intake.held)
        reached.set()
        await going_on.wait()
        async for batch in says("a")(intent):
            yield batch

    async with site(script) as at:
        prepare = at.surface.texts.tokenizer

        async def tokenizer(*arguments: Any, **options: Any) -> Any:
            held.append(at.surface.intake.held)
            return await prepare(*arguments, **options)

        at.surface.texts.tokenizer = tokenizer  # type: ignore[method-assign]  # replaced for the test
        answer = asyncio.create_task(at.complete("x" * 500))
        await reached.wait()
        going_on.set()
        assert (await answer).status_code == 200
    assert max(held) > 500
    assert held[-1] == 0


async def test_clients_that_leave_while_they_send_hold_nothing() -> None:
    async def leaves() -> Any:
        yield b'{"prompt": "' + b"x" * 700
        await until(lambda: at.surface.intake.held >= 700)
        raise RuntimeError("gone")

    async with site(says("a"), on_socket=True) as at:
        for path in ("/v1/completions", "/detokenize"):
            with pytest.raises(RuntimeError, match="gone"):
                await at.client.post(path, content=leaves())
        await until(lambda: at.surface.intake.held == 0)


async def test_wrong_paths_and_methods_are_openai_errors() -> None:
    async with site(says("a")) as at:
        missing = await at.client.get("/v1/nothing")
        method = await at.client.get("/v1/chat/completions")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert method.json()["error"]["type"] == "invalid_request_error"


async def test_without_any_worker_requests_are_503_with_a_wait() -> None:
    async with site(says("a"), cluster=FakeCluster(info=None, missing="no worker")) as at:
        reply = await at.chat()
        models = await at.client.get("/v1/models")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")
    assert reply.json()["error"]["code"] == "no_decode_worker"
    assert models.json()["data"] == []


@pytest.mark.parametrize("secret", ["the prompt 1234"])
async def test_errors_never_quote_the_prompt(secret: str) -> None:
    async with site(says("a")) as at:
        wrong = await at.client.post("/v1/completions", json={"prompt": [secret, 1]})
        extra = await at.client.post("/v1/chat/completions", json={"messages": [{"role": secret, "content": secret}]})
    assert secret not in wrong.text
    assert secret not in extra.text
