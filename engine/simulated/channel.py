"""The side channel between two simulated engines: small JSON messages, one a line, over TCP."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

_LINE_LIMIT = 1 << 20


class Connection:
    """One peer, seen from the server. `name` tells connections apart."""

    def __init__(self, name: int, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._writer = writer

    def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def abort(self) -> None:
        self._writer.transport.abort()


class ChannelServer:
    """Answers calls of peers. `handle` is quick and does no I/O; None leaves a call without an answer."""

    def __init__(
        self,
        handle: Callable[[Message, Connection], Message | None],
        closed: Callable[[Connection], None],
    ) -> None:
        self._handle = handle
        self._closed = closed
        self._server: asyncio.Server | None = None
        self._connections: dict[int, Connection] = {}
        self._names = itertools.count(1)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LINE_LIMIT)

    async def stop(self) -> None:
        if self._server is None:
            return
        self.die()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), 1.0)

    def push(self, message: Message) -> None:
        """To every peer that is connected."""
        for connection in self._connections.values():
            connection.send(message)

    def die(self) -> None:
        """Breaks every connection and takes no more, as the end of the process would."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(next(self._names), writer)
        self._connections[connection.name] = connection
        try:
            while line := await reader.readline():
                message: Message = json.loads(line)
                answer = self._handle(message, connection)
                if answer is not None:
                    connection.send({"id": message.get("id"), **answer})
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # a peer that breaks off or talks nonsense loses its connection, nothing else
        finally:
            del self._connections[connection.name]
            self._closed(connection)
            writer.close()


class PeerChannel:
    """Calls one peer; connects when first needed, and again after a loss, which `lost` hears and `losses` counts."""

    def __init__(
        self,
        host: str,
        port: int,
        pushed: Callable[[Message], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.host = host
        self.port = port
        self.connects = 0
        self.losses = 0
        self._pushed = pushed
        self._on_loss = lost
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._ids = itertools.count(1)
        self._connecting = asyncio.Lock()

    async def call(self, timeout_s: float, **message: Any) -> Message:
        """One answer; raises ConnectionError or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._connect()
            assert self._writer is not None
            number = next(self._ids)
            future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            self._pending[number] = future
            try:
                self._writer.write(json.dumps({"id": number, **message}).encode() + b"\n")
                return await future
            finally:
                self._pending.pop(number, None)

    def tell(self, **message: Any) -> None:
        """No answer, and nothing at all where there is no connection."""
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        self._lost()

    async def _connect(self) -> None:
        async with self._connecting:
            if self._writer is not None:
                return
            reader, self._writer = await asyncio.open_connection(self.host, self.port, limit=_LINE_LIMIT)
            self.connects += 1
            self._listener = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message: Message = json.loads(line)
                future = self._pending.get(message.get("id", 0))
                if future is None:
                    self._pushed(message)
                elif not future.done():
                    future.set_result(message)
        except (ConnectionError, ValueError):
            pass
        finally:
            self._lost()

    def _lost(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.losses += 1
            self._on_loss()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError(f"lost {self.host}:{self.port}"))
