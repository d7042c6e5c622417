"""A client that leaves is noticed at once, in every phase, streaming or not."""

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.request.intent import Intent
from gateway.request.phase import Phase
from tests.gateway.http.scripted import Batch, Site, piece, says, site
from tests.waiting import until


async def never(intent: Intent) -> AsyncIterator[Batch]:
    await asyncio.Event().wait()
    yield ()


async def one_token_then_never(intent: Intent) -> AsyncIterator[Batch]:
    yield (piece(0, (97,), first=True),)
    await asyncio.Event().wait()


async def flood(intent: Intent) -> AsyncIterator[Batch]:
    yield (piece(0, (97,), first=True),)
    while True:
        yield (piece(0, (97,) * 20_000),)
        await asyncio.sleep(0)


async def raw(at: Site, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that can be cut off at any moment."""
    url = httpx.URL(at.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("stream", [b"true", b"false"])
async def test_b34_b35_leaving_before_the_first_token_cancels_within_250_ms(stream: bytes) -> None:
    async with site(never, on_socket=True) as at:
        _, writer = await raw(at, b'{"prompt":"x","stream":' + stream + b"}")
        await until(lambda: at.lifecycle.open_now == 1)
        writer.close()
        await until(at.lifecycle.cancelled.is_set, 0.25)
        await until(lambda: at.lifecycle.open_now == 0)
        assert at.observer.records[0].phase is Phase.CANCELLED


async def test_b34_leaving_between_tokens_cancels_within_250_ms() -> None:
    async with site(one_token_then_never, on_socket=True) as at:
        reader, writer = await raw(at, b'{"prompt":"x","stream":true}')
        await reader.readuntil(b'"text":"a"')
        writer.close()
        await until(at.lifecycle.cancelled.is_set, 0.25)


async def test_leaving_while_tokenizing_is_a_cancel_and_reaches_no_engine() -> None:
    async with site(never, on_socket=True, settings={"tokenizer_threads": 1}) as at:
        going_on = threading.Event()
        blocking = asyncio.ensure_future(at.surface.texts.run(going_on.wait))
        _, writer = await raw(at, b'{"prompt":"x"}')
        await asyncio.sleep(0.05)
        writer.close()
        await until(lambda: at.observer.records)
        going_on.set()
        await blocking
        assert at.observer.records[0].phase is Phase.CANCELLED
        assert not at.lifecycle.intents


async def test_leaving_while_the_request_is_wound_up_ends_its_account_once() -> None:
    async with site(says("done"), on_socket=True) as at:
        at.lifecycle.exit_s = 0.2
        reader, writer = await raw(at, b'{"prompt":"x"}')
        await reader.readuntil(b'"text":"done"')
        writer.close()
        await until(lambda: at.observer.records)
        await asyncio.sleep(0.3)
        assert [record.phase for record in at.observer.records] == [Phase.DONE]


async def test_the_end_of_an_answer_is_not_taken_for_a_client_that_left() -> None:
    async with site(says("done"), on_socket=True) as at:
        at.lifecycle.exit_s = 0.1
        for stream in (True, False):
            assert (await at.complete(stream=stream)).status_code == 200
        await until(lambda: len(at.observer.records) == 2)
        await asyncio.sleep(0.1)
        assert at.lifecycle.exits_cut == 0


async def test_leaving_in_the_middle_of_a_body_leaves_nothing_behind() -> None:
    async with site(never, on_socket=True) as at:
        url = httpx.URL(at.url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert (await at.client.get("/livez")).status_code == 200
        assert not at.lifecycle.intents


async def test_a_client_that_takes_nothing_is_dropped() -> None:
    async with site(flood, on_socket=True, settings={"deadlines": {"write_s": 0.3}}) as at:
        _, writer = await raw(at, b'{"prompt":"x","stream":true}')
        await until(lambda: at.lifecycle.cancelled.is_set())
        writer.close()
        await until(lambda: at.lifecycle.open_now == 0)


async def test_b37_many_leaving_clients_leave_no_task() -> None:
    async with site(one_token_then_never, on_socket=True) as at:
        before = len(asyncio.all_tasks())
        writers = [(await raw(at, b'{"prompt":"x","stream":true}'))[1] for _ in range(50)]
        await until(lambda: at.lifecycle.open_now == 50)
        for writer in writers:
            writer.close()
        await until(lambda: len(at.observer.records) == 50)
        await until(lambda: len(asyncio.all_tasks()) <= before)
