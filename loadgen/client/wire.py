"""One HTTP/1.1 connection. Bytes are stamped when the loop hands them over, before any task is woken: what a
coroutine-based client reads late under load is seen here on time."""

import asyncio
import ssl
from dataclasses import dataclass, field
from functools import cache
from time import monotonic
from typing import Protocol, cast

import httptools


class Sink(Protocol):
    """Receives one response. `at_s` is the monotonic clock: the loop's own has only milliseconds under uvloop."""

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None: ...

    def body(self, data: bytes, at_s: float) -> None: ...

    def complete(self, at_s: float) -> None: ...


class ConnectionLostError(Exception):
    """The connection ended before the response did. `answered` tells whether any byte of it had come."""

    def __init__(self, cause: str, *, answered: bool) -> None:
        super().__init__(cause)
        self.answered = answered


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int
    tls: bool = False
    #: False accepts any certificate.
    verify: bool = True


class Connection(asyncio.Protocol):
    """Carries one exchange at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._done: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[str, str] = {}
        self._now = 0.0
        self._answered = False
        self._until_close = False
        self.exchanges = 0
        self.reusable = False

    @property
    def peer(self) -> str:
        """The address that was reached; empty when it is not known."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(name[0]) if name else ""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        self._now = monotonic()
        self._answered = True
        if self._parser is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.reusable = False
            self._fail(f"malformed HTTP response ({error})")
            self.abort()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._until_close and exc is None:
            self._now = monotonic()
            self._finish()
        else:
            self._fail(f"connection lost ({exc})" if exc else "connection closed by the target")

    # httptools callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        self.reusable = self.reusable and bool(self._parser.should_keep_alive())
        self._until_close = "content-length" not in self._headers and "transfer-encoding" not in self._headers
        if self._sink is not None:
            self._sink.head(status, self._headers, self._now)

    def on_body(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.body(data, self._now)

    def on_message_complete(self) -> None:
        if self._parser is not None and self._parser.get_status_code() >= 200:
            self._finish()

    # exchange

    async def exchange(self, request: bytes, sink: Sink) -> None:
        """Sends and returns when the response has ended; raises ConnectionLostError when it broke.

        Cancelling it leaves the connection unusable: close it.
        """
        transport = self._transport
        if transport is None or not self.reusable:
            raise ConnectionLostError("connection closed by the target", answered=False)
        self._sink, self._answered, self._headers, self._until_close = sink, False, {}, False
        self._parser = httptools.HttpResponseParser(self)
        self._done = self._loop.create_future()
        self.exchanges += 1
        transport.write(request)
        try:
            await self._done
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._sink = self._parser = self._done = None

    def abort(self) -> None:
        """Drops the connection at once, as a client that leaves does."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            if self._sink is not None:
                self._sink.complete(self._now)
            self._done.set_result(None)

    def _fail(self, cause: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionLostError(cause, answered=self._answered))


@dataclass(slots=True)
class Pool:
    """Idle connections to one endpoint; as many as there are open requests."""

    endpoint: Endpoint
    connect_timeout_s: float = 10.0
    _idle: list[Connection] = field(default_factory=list)
    _address: str = ""

    async def exchange(self, request: bytes, sink: Sink) -> None:
        """One exchange on a kept or a new connection.

        A kept connection that the target closed meanwhile, before a byte of an answer, is replaced once.
        """
        connection = self._kept()
        if connection is not None:
            try:
                await self._on(connection, request, sink)
                return
            except ConnectionLostError as error:
                if error.answered:
                    raise
        await self._on(await self.open(), request, sink)

    async def _on(self, connection: Connection, request: bytes, sink: Sink) -> None:
        await connection.exchange(request, sink)
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def open(self) -> Connection:
        """A new connection; ConnectionLostError when there is none to be had."""
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                connection = await self._connect()
        except TimeoutError:
            raise ConnectionLostError("connecting timed out", answered=False) from None
        except OSError as error:
            raise ConnectionLostError(f"cannot connect ({error.strerror or error})", answered=False) from None
        return connection

    async def _connect(self) -> Connection:
        """Resolves the name once: a look-up per connection goes through a small pool of threads."""
        loop, end = asyncio.get_running_loop(), self.endpoint
        host = self._address or end.host
        _, connection = await loop.create_connection(
            lambda: Connection(loop),
            host,
            end.port,
            ssl=_tls(end.verify) if end.tls else None,
            server_hostname=end.host if end.tls else None,
        )
        self._address = connection.peer
        return connection

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()


@cache
def _tls(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
