"""Connections that are held without a request, and requests that come before the last answer has ended."""

import asyncio

import httpx
import pytest

from gateway.http import protocol
from tests.gateway.http.scripted import Site, says, site
from tests.gateway.http.test_disconnects import never
from tests.waiting import HANG_S, until

BODY = b'{"prompt":"x"}'
ASK = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


async def dial(at: Site, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = httpx.URL(at.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(data)
    return reader, writer


async def everything(at: Site, data: bytes) -> bytes:
    reader, writer = await dial(at, data)
    try:
        return await asyncio.wait_for(reader.read(), HANG_S)
    finally:
        writer.close()


async def without_end(writer: asyncio.StreamWriter, part: bytes = b"x" * 1_000) -> None:
    while True:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("behind", [ASK, b"POST /v1", b"\x00garbage", BODY], ids=str)
async def test_b34_leaving_is_noticed_whatever_was_sent_behind_the_request(behind: bytes) -> None:
    async with site(never, on_socket=True) as at:
        _, writer = await dial(at, ASK + behind)
        await until(lambda: at.lifecycle.open_now == 1)
        writer.close()
        await until(at.lifecycle.cancelled.is_set, 0.25)
        await until(lambda: at.lifecycle.open_now == 0)
        assert len(at.lifecycle.intents) == 1


async def test_a_request_behind_another_is_not_answered_and_the_connection_says_so() -> None:
    async with site(says("a"), on_socket=True) as at:
        answer = await everything(at, ASK * 3)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"HTTP/1.1 200 OK" in answer
        assert b"connection: close" in answer
        assert len(at.lifecycle.intents) == 1


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, b"")
        for _ in range(3):
            writer.write(ASK + b"\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
            assert b"connection: close" not in head
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            assert b'"choices"' in await reader.readexactly(length)
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nx-a: ", b"\r\n"], ids=str)
async def test_a_head_that_does_not_come_closes_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(says("a"), on_socket=True) as at:
        for before in (b"", b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" if sent else b""):
            with monkeypatch.context() as patch:  # heads that do come have all the time they need
                if not before:
                    patch.setattr(protocol, "HEAD_S", 0.2)
                reader, writer = await dial(at, before)
                if before:
                    await reader.readuntil(b"}")
                    patch.setattr(protocol, "HEAD_S", 0.2)
                writer.write(sent)
                assert b" 408 " in await asyncio.wait_for(reader.read(), HANG_S)
            writer.close()
        await asyncio.sleep(0.3)
        assert (await at.complete()).status_code == 200


@pytest.mark.parametrize("path", [b"/livez", b"/readyz", b"/metrics", b"/v1/models"])
async def test_a_client_that_ends_its_own_side_after_a_get_is_answered(path: bytes) -> None:
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % path)
        writer.write_eof()
        assert (await asyncio.wait_for(reader.read(), HANG_S)).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_client_that_ends_its_own_side_after_a_post_counts_as_gone() -> None:
    """It looks the same as one that has closed its socket, and KV must not wait for that one."""
    async with site(never, on_socket=True) as at:
        reader, writer = await dial(at, ASK)
        await until(lambda: at.lifecycle.open_now == 1)
        writer.write_eof()
        await until(at.lifecycle.cancelled.is_set, 0.25)
        assert await asyncio.wait_for(reader.read(), HANG_S) == b""
        writer.close()


@pytest.mark.slow
async def test_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 1.5)
    async with site(never, on_socket=True) as at:
        reader, writer = await dial(at, ASK)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 2.0)
        writer.close()


async def test_what_is_no_http_gets_an_error_object() -> None:
    async with site(says("a"), on_socket=True) as at:
        answer = await everything(at, b"\x16\x03\x01 hello\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"code":"invalid_request"' in answer


CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %s\r\n\r\n"


@pytest.mark.parametrize("sent", [CHUNKED % b"chunked" + b"zz\r\n", CHUNKED % b"gzip" + BODY], ids=["chunk", "coding"])
async def test_a_body_that_cannot_be_read_is_refused_without_waiting_for_its_rest(sent: bytes) -> None:
    async with site(says("a"), on_socket=True) as at:
        answer = await everything(at, sent)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b'"code":"invalid_request"' in answer
        assert not at.lifecycle.intents


@pytest.mark.parametrize("start", [b"GET /", b"GET /livez HTTP/1.1\r\nx-a: "], ids=["path", "field"])
@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"], ids=["first", "further"])
async def test_a_head_without_end_is_refused_by_its_size(start: bytes, before: bytes) -> None:
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, before)
        if before:
            await reader.readuntil(b"}")
        writer.write(start + b"a" * protocol.MAX_HEAD_BYTES)
        assert (await asyncio.wait_for(reader.read(), HANG_S)).startswith(b"HTTP/1.1 431 ")
        writer.close()


FIELDS = b"".join(b"x-%d: y\r\n" % number for number in range(20_000))
LONG = b"x-a: %s\r\n" % (b"a" * protocol.MAX_HEAD_BYTES)


@pytest.mark.parametrize(
    ("fields", "said"), [(FIELDS, b"more than 100 fields"), (LONG, b"longer than 65536 bytes")], ids=["many", "long"]
)
async def test_a_head_that_comes_whole_is_bounded_in_fields_and_bytes(fields: bytes, said: bytes) -> None:
    """20,000 lines in one piece were taken: only a head that had not ended was measured."""
    async with site(says("a"), on_socket=True) as at:
        answer = await everything(at, b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert said in answer
        assert b'"code":"invalid_request"' in answer
        assert b"connection: close" in answer
        assert not at.lifecycle.intents


async def test_a_head_with_as_many_fields_as_it_may_have_is_answered() -> None:
    fields = b"x: y\r\n" * (protocol.MAX_FIELDS - 2)
    async with site(says("a"), on_socket=True) as at:
        for _ in range(2):
            head = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + fields + b"\r\n"
            assert (await everything(at, head)).startswith(b"HTTP/1.1 200 ")


WHOLE = CHUNKED % b"chunked" + b"%x\r\n%s\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    ("start", "more"), [(b"0\r\n", FIELDS), (b"0\r\nx-a: ", b"a" * 100_000), (b"1;", b"a" * 100_000)]
)
async def test_trailers_and_chunk_extensions_are_bounded_as_a_head_is(start: bytes, more: bytes) -> None:
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, WHOLE + start)
        sending = asyncio.create_task(without_end(writer, more))
        answer = await asyncio.wait_for(reader.read(), HANG_S)
        sending.cancel()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"no part of the body" in answer
        assert not at.lifecycle.intents


async def test_trailers_are_no_headers() -> None:
    """They came after the body had been read, into the list that the layers look in."""
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, WHOLE + b"0\r\nx-request-id: mine\r\nconnection: close\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"mine" not in head


async def test_the_size_of_a_body_is_not_that_of_a_head() -> None:
    body = b'{"prompt":"%s"}' % (b"x" * protocol.MAX_HEAD_BYTES)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with site(says("a"), on_socket=True) as at:
        assert b" 431 " not in await everything(at, head + body)


REFUSED = {"max_body_bytes": 1000}
LARGE = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n%s\r\n\r\n"


@pytest.mark.parametrize("length", [b"content-length: 4000000", b"transfer-encoding: chunked"], ids=["told", "chunked"])
async def test_the_answer_to_a_body_that_is_not_read_ends_the_connection_and_is_seen(
    length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is still sending is not reset, and what it sends is no further request."""
    monkeypatch.setattr(protocol, "PARTING_S", HANG_S)
    async with site(says("a"), on_socket=True, settings=REFUSED) as at:
        reader, writer = await dial(at, LARGE % length)
        if length.endswith(b"chunked"):
            writer.write(b"7d0\r\n" + b"x" * 2_000)
        answer = await asyncio.wait_for(reader.read(), HANG_S)
        for _ in range(60):
            writer.write(b"x" * 65_536)
            await asyncio.wait_for(writer.drain(), HANG_S)
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answer


async def test_a_client_that_goes_on_sending_after_its_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PARTING_S", 0.05)
    async with site(says("a"), on_socket=True, settings=REFUSED) as at:
        reader, writer = await dial(at, LARGE % b"content-length: 4000000")
        assert b" 413 " in await asyncio.wait_for(reader.read(), HANG_S)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(without_end(writer), HANG_S)
        writer.close()


async def test_a_refusal_of_what_was_read_keeps_the_connection() -> None:
    async with site(says("a"), on_socket=True) as at:
        reader, writer = await dial(at, ASK.replace(b"}", b"]"))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" not in head
