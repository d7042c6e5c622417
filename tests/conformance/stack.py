"""All of tandem in one process: HTTP on a socket, the gateway, gRPC, workers with simulated engines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import httpx

from engine.simulated.faults import Script
from gateway.app import assemble
from gateway.config import GatewayConfig
from gateway.http.app import build_http
from gateway.http.server import HttpServer, listen
from gateway.observe.surface_observer import SilentSurfaceObserver
from gateway.request.record import Record
from proto.sampling import Sampling
from proto.ticket import Ticket
from proto.work import Work
from proto.worker import Role
from tests.conformance.replies import Form, Reply
from tests.gateway.fleet import Fleet, Member, Watcher, config, expected, prompt, until
from tests.waiting import HANG_S

#: A prompt length whose first token is carried, and one on a block boundary where it is drawn again.
CARRY, REPLAY = 40, 48


def words(length: int, seed: int = 0) -> str:
    """A text of so many letters, which are as many tokens of a plain completion."""
    return bytes(prompt(length, seed)).decode()


def text_of(length: int, form: Form, seed: int = 0) -> str:
    """A text that makes a prompt of exactly `length` tokens, chat template included."""
    return words(length - len(form.tokens("")), seed)


def fault(kind: str, leg: str = "any", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "where": {"leg": leg}, **more}


def script(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"faults": list(faults)}


@dataclass
class Eyes(Watcher, SilentSurfaceObserver):
    """Everything that the gateway tells anybody."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an engine was told to do."""

    worker: str
    work: Work
    hold: bool
    pull: Ticket | None


class Whole(Fleet):
    client: httpx.AsyncClient
    host: str
    port: int

    def __init__(self, settings: GatewayConfig) -> None:
        eyes = Eyes()
        self.gateway = assemble(settings, (eyes,))
        super().__init__(settings, eyes, self.gateway.cluster, self.gateway.lifecycle)
        self.asked: list[Asked] = []
        self._spies = AsyncExitStack()

    async def add(
        self,
        name: str,
        role: Role,
        script: dict[str, Any] | None = None,
        port: int = 0,
        place: dict[str, str] | None = None,
        **engine: Any,
    ) -> Member:
        member = await super().add(name, role, script, port, place, **engine)
        submit = member.engine.submit

        def spy(work: Work, *, hold: bool = False, pull: Ticket | None = None) -> None:
            self.asked.append(Asked(name, work, hold, pull))
            submit(work, hold=hold, pull=pull)

        self._spies.enter_context(patch.object(member.engine, "submit", spy))
        return member

    @property
    def prefills(self) -> list[Work]:
        """The prefill legs that engines have been asked for."""
        return [asked.work for asked in self.asked if asked.hold]

    @property
    def decodes(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.hold]

    def forget(self) -> None:
        self.asked.clear()
        self.watcher.records.clear()
        self.watcher.handoffs.clear()
        self.watcher.retries.clear()

    async def account(self) -> Record:
        """Of the only request since `forget`; it is closed a moment after the client has everything."""
        await until(lambda: bool(self.watcher.records))
        (record,) = self.watcher.records
        return record

    def use(self, worker: str, *faults: dict[str, Any]) -> None:
        self.members[worker].engine.injector.use(Script.model_validate(script(*faults)))

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series that have these labels."""
        found = 0.0
        for line in self.gateway.metrics.render().decode().splitlines():
            series, _, value = line.rpartition(" ")
            wanted = (f'{label}="{text}"' in series for label, text in labels.items())
            if series.partition("{")[0] == name and all(wanted):
                found += float(value)
        return found

    def body(self, form: Form, text: str | list[str], **parameters: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
        body |= {"messages": [{"role": "user", "content": text}]} if form.chat else {"prompt": text}
        if form.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in {**body, **parameters}.items() if value is not None}

    async def post(
        self, form: Form, text: str | list[str], look: Callable[[], int] | None = None, **parameters: Any
    ) -> Reply:
        """`look` is called at every read of a stream. A parameter that is None is left out."""
        body = self.body(form, text, **parameters)
        async with asyncio.timeout(HANG_S), self.client.stream("POST", form.path, json=body) as got:
            reply = Reply(form, got.status_code, dict(got.headers))
            try:
                async for part in got.aiter_raw():
                    reply.raw += part
                    if look is not None:
                        reply.looks.append(look())
            except httpx.RemoteProtocolError:
                reply.broken = True
        return reply

    async def leave(self, form: Form, text: str, when: Callable[[], bool], **parameters: Any) -> None:
        """A client that hangs up as soon as `when` holds."""
        body = httpx.Request("POST", "http://x", json=self.body(form, text, **parameters)).content
        _, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(f"POST {form.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        await until(when)
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def close(self) -> None:
        await self._spies.aclose()


def truth(form: Form, text: str, max_tokens: int = 8, **sampling: Any) -> tuple[int, ...]:
    """The tokens that an uninterrupted engine answers."""
    return expected(form.tokens(text), Sampling(max_tokens, **{"temperature": 0.0, **sampling}))


def shown(tokens: Iterable[int]) -> str:
    """Tokens as a client reads them; what ended the answer has no text."""
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


@asynccontextmanager
async def whole(roles: Iterable[tuple[str, Role]] = (), **options: Any) -> AsyncIterator[Whole]:
    """Options as those of `fleet`: `settings` for the gateway, `scripts` by worker, the rest for every engine."""
    settings = options.pop("settings", None) or config()
    scripts = options.pop("scripts", {})
    async with AsyncExitStack() as stack:
        built = Whole(settings)
        stack.push_async_callback(built.close)
        # Left in the other order, every worker would wait for the gateway's streams to end.
        front = AsyncExitStack()
        await front.enter_async_context(built.cluster)
        listener = front.enter_context(listen("127.0.0.1", 0, settings.deadlines.write_s))
        await front.enter_async_context(HttpServer(build_http(built.gateway.surface), listener))
        built.host, built.port = listener.getsockname()[:2]
        limits = httpx.Limits(max_connections=None)
        url = f"http://{built.host}:{built.port}"
        built.client = httpx.AsyncClient(base_url=url, timeout=HANG_S, trust_env=False, limits=limits)
        await front.enter_async_context(built.client)
        stack.callback(built.gateway.surface.texts.close)
        stack.push_async_callback(built.stop_workers)
        stack.push_async_exit(front)
        for name, role in roles:
            await built.add(name, role, scripts.get(name), **options)
        await built.ready()
        built.forget()
        yield built


async def right(one: Whole, form: Form, length: int = CARRY, seed: int = 0, **parameters: Any) -> Reply:
    """A request that must be served, with the text that it must have."""
    text = text_of(length, form, seed)
    reply = await one.post(form, text, **parameters)
    assert (reply.status, reply.done) == (200, True), reply.raw
    for choice in range(parameters.get("n", 1)):
        assert reply.tokens(choice) == truth(form, text)
    return reply


async def full(one: Whole, worker: str = "d0", is_full: bool = True) -> None:
    """The gateway has heard that it is, or is not any more."""
    await until(lambda: (seen := one.seen(worker)) is not None and (seen.blocks_used == seen.blocks_total) is is_full)
