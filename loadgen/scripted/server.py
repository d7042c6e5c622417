"""A target that does exactly what its script says: to check the load generator by arithmetic, and a machine by `selftest`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import orjson

from loadgen.scripted.render import STREAM_END, STREAM_HEAD, Renderer, framed, response
from loadgen.scripted.script import Act, Book, Script

_ENDS = (Act.FINISH, Act.CUT, Act.ERROR, Act.RESET)


@dataclass(slots=True)
class Behaviour:
    """The server's habits. `pieces` says how many tokens a word has, so that tokenizers can be imitated.

    `status` is what it says at tandem's own page, which others do not have. `strict` refuses the extensions of vLLM with
    a 400, as stricter servers do.
    """

    book: Book
    model: str = "scripted"
    api_key: str = ""
    strict: bool = False
    running_usage: bool = True
    tokenize: bool = True
    begin_tokens: int = 1
    template_tokens: int = 7
    pieces: Callable[[str], int] = lambda word: 1
    metrics: Callable[[], str] = lambda: ""
    status: dict[str, Any] | None = None
    #: Bodies in order of arrival, for tests to look at.
    seen: list[dict[str, Any]] = field(default_factory=list)
    open_streams: int = 0
    peak_streams: int = 0
    keep_bodies: bool = True
    requests: int = 0


class _Connection(asyncio.Protocol):
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._timers: list[asyncio.TimerHandle] = []
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self._ended()

    # httptools

    def on_url(self, url: bytes) -> None:
        self._url, self._headers = url, {}
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        b = self._behaviour
        path = self._url.decode()
        if b.api_key and self._headers.get(b"authorization") != f"Bearer {b.api_key}".encode():
            self._send(response(401, _error("invalid_api_key")))
        elif path == "/v1/models":
            self._send(response(200, {"object": "list", "data": [{"id": b.model, "object": "model"}]}))
        elif path == "/metrics":
            self._send(response(200, b.metrics().encode(), content_type="text/plain"))
        elif path == "/tandem/v1/status" and b.status is not None:
            self._send(response(200, b.status))
        elif path == "/tokenize" and b.tokenize:
            self._tokenize(orjson.loads(bytes(self._body)))
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self._complete(orjson.loads(bytes(self._body)), chat="chat" in path)
        else:
            self._send(response(404, _error("not_found")))

    def _send(self, data: bytes) -> None:
        self._transport.write(data)

    def _tokenize(self, body: dict[str, Any]) -> None:
        ids = [0] * self._behaviour.begin_tokens
        for word in str(body.get("prompt", "")).split():
            ids += [1 + hash(word) % 30000] * self._behaviour.pieces(word)
        self._send(response(200, {"count": len(ids), "max_model_len": 131072, "tokens": ids}))

    def _complete(self, body: dict[str, Any], *, chat: bool) -> None:
        b = self._behaviour
        number, b.requests = b.requests, b.requests + 1
        if b.keep_bodies:
            b.seen.append(body)
        extensions = {"ignore_eos", "min_tokens"} & set(body)
        if b.strict and (extensions or "continuous_usage_stats" in (body.get("stream_options") or {})):
            self._send(response(400, _error("unknown_parameter")))
            return
        script = b.book(body, number)
        if script.status != 200:
            refusal = response(script.status, _error(script.code))
            self._timers = [self._loop.call_later(script.delay_s, self._send, refusal)]
            return
        self._stream(script, Renderer(body, chat, self._prompt_tokens(body, chat), running_usage=b.running_usage))

    def _prompt_tokens(self, body: dict[str, Any], chat: bool) -> int:
        b = self._behaviour
        if chat:
            texts = " ".join(m["content"] for m in body["messages"])
            return b.begin_tokens + b.template_tokens + sum(b.pieces(w) for w in texts.split())
        prompt = body.get("prompt", "")
        if isinstance(prompt, list):
            return len(prompt)
        return b.begin_tokens + sum(b.pieces(w) for w in prompt.split())

    def _stream(self, script: Script, renderer: Renderer) -> None:
        b = self._behaviour
        began = self._loop.time()
        self._streaming = True
        b.open_streams += 1
        b.peak_streams = max(b.peak_streams, b.open_streams)
        self._send(STREAM_HEAD)
        self._timers = []
        self._next(iter(script.beats), script, renderer, began)

    def _next(self, beats: Any, script: Script, renderer: Renderer, began: float) -> None:
        """Does every beat that is due and sets a timer for the next."""
        out = b""
        for beat in beats:
            wait = began + beat.at_s - self._loop.time()
            if wait > 0:
                if out:
                    self._send(out)
                self._timers = [self._loop.call_later(wait, self._act_then_next, beat, beats, script, renderer, began)]
                return
            out += self._render(beat, script, renderer)
            if self._transport.is_closing():
                return
        if out:
            self._send(out)

    def _act_then_next(self, beat: Any, beats: Any, script: Script, renderer: Renderer, began: float) -> None:
        out = self._render(beat, script, renderer)
        if self._transport.is_closing():
            return
        if out:
            self._send(out)
        if beat.act not in _ENDS:
            self._next(beats, script, renderer, began)

    def _render(self, beat: Any, script: Script, renderer: Renderer) -> bytes:
        if beat.act is Act.RESET:
            self._transport.abort()
            return b""
        out = framed(renderer.beat(beat, script))
        if beat.act in _ENDS:
            out += STREAM_END
            self._ended()
        return out

    def _ended(self) -> None:
        if self._streaming:
            self._streaming = False
            self._behaviour.open_streams -= 1


def _error(code: str) -> dict[str, Any]:
    return {"error": {"message": f"scripted {code or 'refusal'}", "type": "scripted", "code": code or None}}


@asynccontextmanager
async def serving(behaviour: Behaviour, port: int = 0) -> AsyncIterator[str]:
    """Serves on the loopback while the block runs; gives the URL."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(behaviour), "127.0.0.1", port, backlog=4096)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None
