"""Spans reach a collector in batches, and one that does not answer costs nobody but the spans."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ValidationError

from gateway.app import create_app
from gateway.config import GatewayConfig, TracesConfig
from gateway.observe.tracing import exporter as module
from gateway.observe.tracing.exporter import SpanExporter
from gateway.request.phase import Phase
from gateway.request.record import Record
from gateway.request.trace import Trace
from tests.waiting import until


@dataclass
class Collector:
    endpoint: str = ""
    status: int = 200
    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    @property
    def requests(self) -> list[str]:
        """Ids of those whose spans have come."""
        spans = [span for body in self.bodies for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        facts = [one for span in spans if span["name"] == "tandem.request" for one in span["attributes"]]
        return [one["value"]["stringValue"] for one in facts if one["key"] == "tandem.request_id"]


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    one = Collector()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                body = orjson.loads(await reader.readexactly(length))
                if one.status == 200:
                    one.heads.append(head)
                    one.bodies.append(body)
                writer.write(f"HTTP/1.1 {one.status} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        one.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield one


def ended(number: int, trace: Trace | None = None) -> Record:
    record = Record(f"{number:024x}", "m", "", prompt_tokens=1, choices=1, started_s=1.0, trace=trace)
    record.enter(Phase.REJECTED, 2.0)
    return record


async def test_what_has_ended_is_sent_and_the_rest_when_the_gateway_ends() -> None:
    async with collector() as there:
        config = TracesConfig.model_validate(
            {"endpoint": f"{there.endpoint}/", "headers": {"Authorization": "Bearer x"}}
        )
        async with SpanExporter(config, every_s=0.01) as exporter:
            exporter.ended(ended(1))
            await until(lambda: len(there.requests) == 1)
            exporter.ended(ended(2))
        assert there.requests == [f"{number:024x}" for number in (1, 2)]
    assert "post /v1/traces " in there.heads[0]
    assert "authorization: bearer x" in there.heads[0]
    assert "content-type: application/json" in there.heads[0]


async def test_a_full_batch_does_not_wait_for_its_time() -> None:
    async with collector() as there:
        async with SpanExporter(TracesConfig(endpoint=there.endpoint), every_s=3600) as exporter:
            for number in range(module.BATCH):
                exporter.ended(ended(number))
            await until(lambda: len(there.requests) == module.BATCH)
        assert len(there.bodies) == 1


async def test_the_client_says_whether_its_request_is_traced_and_of_the_others_a_share_is() -> None:
    async with collector() as there:
        config = TracesConfig(endpoint=there.endpoint, share=0.5)
        async with SpanExporter(config) as exporter:
            exporter.ended(ended(0xF << 92, Trace("1" * 32, "2" * 16, True)))
            exporter.ended(ended(1, Trace("1" * 32, "2" * 16, False)))
            exporter.ended(ended(0x7 << 92))  # the first digits are drawn by chance
            exporter.ended(ended(0x8 << 92))
        assert there.requests == [f"{0xF << 92:024x}", f"{0x7 << 92:024x}"]


async def test_a_collector_in_trouble_is_heard_of_once_and_when_it_is_well_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, module.log.name)
    async with collector() as there:
        there.status = 503
        async with SpanExporter(TracesConfig(endpoint=there.endpoint), every_s=0.01) as exporter:
            exporter.ended(ended(1))
            await until(lambda: exporter.lost == 1)
            exporter.ended(ended(2))
            await until(lambda: exporter.lost == 2)
            there.status = 200
            exporter.ended(ended(3))
            await until(lambda: len(there.requests) == 1)
    told = [entry.message for entry in caplog.records]
    assert len(told) == 2
    assert "answered 503" in told[0]
    assert told[1].endswith("again; those of 2 requests were lost")


async def test_a_collector_that_is_not_there_holds_up_nothing_and_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    async with SpanExporter(TracesConfig(endpoint="http://127.0.0.1:9"), every_s=3600) as exporter:
        for number in range(5):
            exporter.ended(ended(number))
        assert exporter.lost == 2
    assert exporter.lost == 5


async def test_what_no_batch_can_bear_costs_that_batch_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> dict[str, object]:
        raise OverflowError("no such port")

    async with collector() as there, SpanExporter(TracesConfig(endpoint=there.endpoint), every_s=0.01) as exporter:
        with monkeypatch.context() as patched:
            patched.setattr(module, "document", broken)
            exporter.ended(ended(1))
            await until(lambda: exporter.lost == 1)
        exporter.ended(ended(2))
        await until(lambda: len(there.requests) == 1)
    assert "no such port" in caplog.text


async def test_what_is_left_when_the_gateway_ends_is_counted_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with SpanExporter(TracesConfig(endpoint=f"http://127.0.0.1:{port}"), every_s=0.01) as exporter:
            for number in range(module.BATCH + 3):
                exporter.ended(ended(number))
        assert exporter.lost == module.BATCH + 3
    assert "cannot be sent" in caplog.text


async def test_a_collector_whose_answer_has_no_end_holds_up_nothing() -> None:
    taken = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        taken += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n{")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with SpanExporter(TracesConfig(endpoint=f"http://127.0.0.1:{port}"), every_s=0.01) as exporter:
            for number in range(3):
                before = taken
                exporter.ended(ended(number))
                await until(lambda: taken > before)  # noqa: B023 - awaited in the same round
    assert exporter.lost == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://127.0.0.1:99999"},
        {"endpoint": "http://"},
        {"endpoint": "http://me:Bearer@127.0.0.1:4318"},
        {"headers": {"€": "x"}},
        {"headers": {"authorization": "Bearer a\r\nhost: b"}},
        {"headers": {"authorization": "Bearer €"}},
    ],
)
def test_what_could_never_be_sent_is_refused_before_anything_starts(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        TracesConfig.model_validate({"endpoint": "http://127.0.0.1:4318"} | wrong)
    assert all("Bearer" not in each["msg"] for each in refused.value.errors())


async def test_a_gateway_exports_if_it_is_told_where() -> None:
    with pytest.raises(ValidationError, match="endpoint"):
        TracesConfig(endpoint="localhost:4318")
    async with collector() as there:
        settings = {"traces": {"endpoint": there.endpoint}}
        app = create_app(GatewayConfig.model_validate(settings))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")
        async with app.router.lifespan_context(app), client:
            assert (await client.post("/v1/completions", json={"prompt": ""})).status_code >= 400
        assert len(there.requests) == 1
