"""Streams of events: facts first, exact text, honest ends."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from proto.work import FinishReason
from tests.gateway.http.scripted import EOS, Batch, deltas, events, piece, says, site

HARD = "naïve 日本語 😀👩‍👩‍👧‍👦 end"


async def test_b13_one_identity_and_one_role_for_the_whole_stream() -> None:
    async with site(says("he", "llo", " you")) as at:
        parsed = events((await at.chat(stream=True)).text)
    assert parsed[-1] is None
    chunks = parsed[:-1]
    assert {(c["id"], c["created"], c["model"], c["object"]) for c in chunks} == {
        (chunks[0]["id"], chunks[0]["created"], "toy", "chat.completion.chunk")
    }
    assert [c["choices"][0]["delta"].get("role") for c in chunks] == ["assistant"] + [None] * (len(chunks) - 1)
    assert deltas(chunks) == "hello you"
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == "stop"


@pytest.mark.parametrize("chat", [True, False])
async def test_b20_characters_split_over_tokens_and_batches_arrive_exactly(chat: bool) -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        data = HARD.encode()
        for at, byte in enumerate(data):
            last = at == len(data) - 1
            yield (piece(0, (byte,), finish=FinishReason.LENGTH if last else None, first=at == 0),)

    async with site(script) as at:
        reply = await (at.chat(stream=True) if chat else at.complete(stream=True))
    assert deltas(events(reply.text)) == HARD
    assert "\\u" not in reply.text  # characters travel as themselves, not escaped


async def test_b12_an_answer_cut_inside_a_character_counts_tokens_not_text() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        yield (piece(0, tuple("😀".encode()[:3]), finish=FinishReason.LENGTH, first=True),)

    async with site(script) as at:
        parsed = events((await at.chat(stream=True, stream_options={"include_usage": True}, max_tokens=3)).text)
    assert deltas(parsed) == "\ufffd"
    assert parsed[-2]["usage"]["completion_tokens"] == 3
    assert parsed[-3]["choices"][0]["finish_reason"] == "length"


async def test_b11_usage_comes_last_with_the_prefill_legs_cached_count() -> None:
    async with site(says("a", "b", cached=32)) as at:
        parsed = events((await at.chat(stream=True, stream_options={"include_usage": True}, n=2)).text)
    assert all(chunk["usage"] is None for chunk in parsed[:-2])
    final = parsed[-2]
    assert final["choices"] == []
    assert final["usage"]["completion_tokens"] == 6
    assert final["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    assert final["usage"]["total_tokens"] == final["usage"]["prompt_tokens"] + 6


async def test_running_usage_grows_with_every_chunk() -> None:
    async with site(says("a", "b", finish=FinishReason.LENGTH)) as at:
        options = {"include_usage": True, "continuous_usage_stats": True}
        parsed = events((await at.complete(stream=True, stream_options=options)).text)
    assert [chunk["usage"]["completion_tokens"] for chunk in parsed[:-1]] == [1, 2, 2]


async def test_b24_a_refusal_before_the_first_token_has_its_own_status() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        raise RequestError(Reason.QUEUE_FULL, "full", retry_after_s=1.2, numbers={"queued": 7})
        yield ()

    async with site(script) as at:
        reply = await at.chat(stream=True)
    assert reply.status_code == 429
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["retry-after"] == "2"
    error = reply.json()["error"]
    assert (error["code"], error["type"], error["numbers"]) == ("queue_full", "rate_limit_error", {"queued": 7})


async def test_b24_the_status_line_waits_for_the_first_token() -> None:
    release = asyncio.Event()

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        await release.wait()
        yield (piece(0, (97, EOS), finish=FinishReason.STOP, first=True),)

    async with site(script, on_socket=True) as at:
        request = asyncio.ensure_future(at.chat(stream=True))
        await asyncio.sleep(0.1)
        assert not at.observer.statuses
        release.set()
        assert (await request).status_code == 200


async def test_b23_a_stream_that_breaks_says_so_and_never_says_done() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        yield (piece(0, (97,), first=True),)
        yield (piece(0, (98,)),)
        raise RequestError(Reason.WORKER_LOST, "the decode worker is gone")

    async with site(script, on_socket=True) as at:
        text, broken = await read_until_broken(at.client)
        assert broken
        assert at.observer.broken == 1
        assert (await at.client.get("/livez")).status_code == 200
    parsed = events(text)
    assert None not in parsed
    assert deltas(parsed) == "ab"
    assert parsed[-1]["error"]["code"] == "worker_lost"


async def read_until_broken(client: httpx.AsyncClient) -> tuple[str, bool]:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    text = ""
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            async for part in reply.aiter_text():
                text += part
    except httpx.RemoteProtocolError:
        return text, True
    return text, False


async def test_a_defect_before_the_first_token_is_a_500_that_tells_nothing_private() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        raise KeyError("secret prompt")
        yield ()

    async with site(script) as at:
        reply = await at.chat(stream=True)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "internal_error"
    assert "secret" not in reply.text


async def test_b16_every_token_leaves_before_the_next_is_made() -> None:
    turn = asyncio.Event()

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for at, byte in enumerate(b"abc"):
            yield (piece(0, (byte,), finish=FinishReason.LENGTH if at == 2 else None, first=at == 0),)
            await turn.wait()
            turn.clear()

    async with (
        site(script, on_socket=True) as at,
        at.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as reply,
    ):
        seen = []
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                seen += events(line)
                turn.set()
    assert [entry["choices"][0]["text"] for entry in seen] == ["a", "b", "c"]


async def test_b25_a_silent_stream_gets_comments() -> None:
    going_on = asyncio.Event()

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        yield (piece(0, (97,), first=True),)
        await going_on.wait()
        yield (piece(0, (98,), finish=FinishReason.LENGTH),)

    seen = ""
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    async with (
        site(script, settings={"heartbeat_s": 0.1}, on_socket=True) as at,
        at.client.stream("POST", "/v1/chat/completions", json=body) as reply,
    ):
        async for part in reply.aiter_text():
            seen += part
            if seen.count(": waiting\n\n") == 2:
                going_on.set()
    assert seen.count(": waiting\n\n") >= 2
    assert deltas(events(seen)) == "ab"


async def test_no_part_of_a_stop_string_is_streamed_and_the_engine_is_told() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for at, text in enumerate(["one E", "N", "D two", "three"]):
            yield (piece(0, tuple(text.encode()), first=at == 0),)

    async with site(script) as at:
        options = {"include_usage": True}
        parsed = events((await at.chat(stream=True, stop=["END"], stream_options=options)).text)
        assert at.lifecycle.streams[0].stopped == [0]
    assert deltas(parsed) == "one "
    assert parsed[-3]["choices"][0]["finish_reason"] == "stop"
    assert parsed[-3]["choices"][0]["stop_reason"] == "END"
    assert parsed[-2]["usage"]["completion_tokens"] == len("one END")


async def test_timings_come_in_the_last_chunk_when_asked_for_by_header() -> None:
    async with site(says("a")) as at:
        body = {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}}
        asked = await at.client.post("/v1/completions", json=body, headers={"X-Tandem-Timing": "1"})
        silent = await at.client.post("/v1/completions", json=body)
    assert events(asked.text)[-2]["tandem"]["path"] == "local"
    assert asked.headers["x-tandem-path"] == "local"
    assert "tandem" not in events(silent.text)[-2]


async def test_completions_of_several_prompts_are_numbered_through() -> None:
    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for choice in reversed(range(intent.choices)):
            yield (piece(choice, (97 + choice,), finish=FinishReason.LENGTH, first=True),)

    async with site(script) as at:
        parsed = events((await at.complete(["x", "y"], n=2, stream=True, echo=True)).text)
    assert [deltas(parsed, choice) for choice in range(4)] == ["xa", "xb", "yc", "yd"]
