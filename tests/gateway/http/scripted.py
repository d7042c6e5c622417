"""The HTTP surface on a real socket, over answers that a test writes down."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx
import orjson

from gateway.cluster.cluster import Cluster, UnknownWorkerError
from gateway.cluster.snapshot import ClusterSnapshot, Integrity, WorkerSnapshot
from gateway.config import GatewayConfig
from gateway.http.app import build_http
from gateway.http.server import HttpServer, listen
from gateway.http.surface import Surface, build_surface
from gateway.observe.surface_observer import SilentSurfaceObserver, SurfaceObserver
from gateway.request.answer import Piece
from gateway.request.errors import RequestError
from gateway.request.intent import Intent
from gateway.request.lifecycle import Lifecycle
from gateway.request.phase import Phase
from gateway.request.record import Record
from proto.work import FinishReason, TokenLogprobs
from proto.worker import Role, Topology, WorkerInfo
from tests import workers
from tests.waiting import HANG_S

Batch = tuple[Piece, ...]
Script = Callable[[Intent], AsyncIterator[Batch]]
EOS = 256


def worker_info(window: int = 4096) -> WorkerInfo:
    topology = Topology("here", device="simulated")
    return workers.worker_info(model="toy", max_model_len=window, eos_token_ids=(EOS,), topology=topology)


@dataclass
class FakeCluster:
    info: WorkerInfo | None = field(default_factory=worker_info)
    missing: str = ""
    listed: tuple[WorkerSnapshot, ...] = ()
    drains: list[tuple[str, bool]] = field(default_factory=list)
    trouble: Exception | None = None  # of every order
    listeners: list[Callable[[], None]] = field(default_factory=list)
    gateway_id: str = "g"
    join_address: str = "127.0.0.1:1"

    @property
    def model(self) -> WorkerInfo | None:
        return self.info

    @property
    def window(self) -> int:
        return self.info.max_model_len if self.info else 0

    def subscribe(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def joined(self) -> None:
        """A worker has come, and those who want to know are told."""
        self.info = worker_info()
        for listener in self.listeners:
            listener()

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot("g", "none" if self.missing else "colocated", self.missing, self.listed, (), {}, 0)

    def integrity(self) -> Integrity:
        return Integrity(0, 0, 0, 0, 0, 0, 0, ())

    async def drain(self, worker_id: str, *, resume: bool = False) -> int:
        if worker_id != "w":
            raise UnknownWorkerError(worker_id)
        if self.trouble is not None:
            raise self.trouble
        self.drains.append((worker_id, resume))
        return 3

    async def set_role(self, worker_id: str, role: Role) -> Role:
        await self.drain(worker_id)
        assert self.info is not None
        before, self.info = self.info.role, replace(self.info, role=role)
        return before


@dataclass
class Watched(SilentSurfaceObserver):
    records: list[Record] = field(default_factory=list)
    broken: int = 0
    shown: int = 0
    statuses: list[tuple[str, int]] = field(default_factory=list)

    def ended(self, record: Record) -> None:
        self.records.append(record)

    def stream_broken(self, record: Record) -> None:
        self.broken += 1

    def tokens_shown(self, count: int) -> None:
        self.shown += count

    def responded(self, route: str, status: int) -> None:
        self.statuses.append((route, status))


class Stream:
    """An AnswerStream over a script, which must not name a choice that was stopped."""

    def __init__(self, record: Record, batches: AsyncIterator[Batch]) -> None:
        self.record = record
        self.stopped: list[int] = []
        self._batches = batches

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Batch:
        return await self._batches.__anext__()

    async def stop_choice(self, choice: int) -> None:
        self.stopped.append(choice)


@dataclass
class FakeLifecycle:
    """Runs the script and keeps the account as the real one does."""

    script: Script
    observer: SurfaceObserver
    intents: list[Intent] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    open_now: int = 0
    exit_s: float = 0.0  # how long leaving takes; the account is closed at its end, come what may
    exits_cut: int = 0

    @asynccontextmanager
    async def open(self, intent: Intent, record: Record) -> AsyncIterator[Stream]:
        self.intents.append(intent)
        self.open_now += 1
        record.path = "local"
        record.enter(Phase.QUEUED, record.started_s)
        record.enter(Phase.RESERVED, record.started_s)
        record.enter(Phase.DECODING, record.started_s)
        stream = Stream(record, self.script(intent))
        self.streams.append(stream)
        end = Phase.FAILED
        try:
            yield stream
            end = Phase.DONE
        except RequestError as error:
            record.reason = error.reason
            raise
        except asyncio.CancelledError:
            end = Phase.CANCELLED
            self.cancelled.set()
            raise
        finally:
            asyncio.get_running_loop().call_later(self.exit_s, self._close, record, end)
            try:
                await asyncio.sleep(self.exit_s)
            except asyncio.CancelledError:
                self.exits_cut += 1
                raise

    def _close(self, record: Record, end: Phase) -> None:
        self.open_now -= 1
        record.enter(end, record.started_s)
        self.observer.ended(record)


@dataclass
class Site:
    url: str
    client: httpx.AsyncClient
    cluster: FakeCluster
    lifecycle: FakeLifecycle
    observer: Watched
    surface: Surface

    async def chat(self, content: Any = "hi", **body: Any) -> httpx.Response:
        messages = body.pop("messages", [{"role": "user", "content": content}])
        return await self.client.post("/v1/chat/completions", json={"model": "toy", "messages": messages, **body})

    async def complete(self, prompt: Any = "hi", **body: Any) -> httpx.Response:
        return await self.client.post("/v1/completions", json={"model": "toy", "prompt": prompt, **body})

    @property
    def intent(self) -> Intent:
        return self.lifecycle.intents[-1]


@asynccontextmanager
async def site(
    script: Script, *, cluster: FakeCluster | None = None, on_socket: bool = False, settings: Any = None
) -> AsyncIterator[Site]:
    """In process, or `on_socket` over a real server, which is what streams and disconnects need."""
    config = GatewayConfig.model_validate(settings or {})
    fake, observer = cluster or FakeCluster(), Watched()
    lifecycle = FakeLifecycle(script, observer)
    surface = build_surface(config, cast(Cluster, fake), cast(Lifecycle, lifecycle), observer)
    app = build_http(surface)
    async with AsyncExitStack() as stack:
        url, transport = "http://gateway", None
        if on_socket:
            listener = stack.enter_context(listen("127.0.0.1", 0, config.deadlines.write_s))
            await stack.enter_async_context(HttpServer(app, listener))
            url = f"http://127.0.0.1:{port_of(listener)}"
        else:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(base_url=url, transport=transport, timeout=HANG_S, trust_env=False)
        await stack.enter_async_context(client)
        yield Site(url, client, fake, lifecycle, observer, surface)
    surface.texts.close()


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def says(*texts: str, finish: FinishReason = FinishReason.STOP, cached: int = 0) -> Script:
    """One batch a text; every choice of every prompt says the same. STOP ends with an EOS token."""

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        for at, text in enumerate(texts):
            last = at == len(texts) - 1
            tokens = tuple(text.encode()) + ((EOS,) if last and finish is FinishReason.STOP else ())
            yield tuple(
                piece(choice, tokens, finish=finish if last else None, first=at == 0, cached=cached)
                for choice in range(intent.choices)
            )
            await asyncio.sleep(0)

    return script


def piece(
    choice: int,
    tokens: tuple[int, ...],
    *,
    finish: FinishReason | None = None,
    first: bool = False,
    cached: int = 0,
    logprobs: bool = False,
) -> Piece:
    entries = tuple(logprobs_of(token) for token in tokens) if logprobs else ()
    return Piece(choice, tokens, entries, finish, first, cached if first else 0)


def logprobs_of(token: int) -> TokenLogprobs:
    """The token itself and two alternatives, one of which is likelier."""
    return TokenLogprobs((token, 120, 121), (-1.0, -0.5, -2.0), (2, 1, 3))


def events(text: str) -> list[Any]:
    """The data of every event; [DONE] as None. Comments are left out."""
    found = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [None if data == "[DONE]" else orjson.loads(data) for data in found]


def deltas(parsed: list[Any], choice: int = 0) -> str:
    pieces = [entry for event in parsed if event for entry in event.get("choices", ()) if entry["index"] == choice]
    return "".join(entry["delta"].get("content", "") if "delta" in entry else entry["text"] for entry in pieces)
