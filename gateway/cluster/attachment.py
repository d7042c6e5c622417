"""The one stream per worker that carries commands out and, every engine step, a frame of new tokens in."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

import grpc
import grpc.aio

from gateway.cluster.client import WorkerLostError
from proto.services import ATTACH
from proto.ticket import Ticket
from proto.work import Abort, Command, Frame, HandOver, Hello, SequenceDelta, Start, Work, WriterLost

log = logging.getLogger(__name__)

#: In bytes: what cannot be encoded or understood concerns one sequence, not the stream.
Call = grpc.aio.StreamStreamCall[bytes, bytes]


#: How long news is waited for on a stream that takes no commands any more. It ends by itself, unless the gateway is to blame.
LAST_WORDS_S = 10.0


class Sink(Protocol):
    """Where the news of one sequence goes. Called synchronously from the reader: no task switch per token."""

    def feed(self, delta: SequenceDelta) -> None: ...

    def lost(self, reason: str) -> None:
        """The stream is gone; nothing more will come."""
        ...


def _let_it_lapse(ticket: Ticket) -> None:
    pass


class Attachment:
    """Sequences of one gateway on one worker for as long as the stream lives.

    `orphaned` gets tickets of sequences that were aborted here while these were on the way.
    """

    def __init__(self) -> None:
        self.orphaned: Callable[[Ticket], None] = _let_it_lapse
        self._sinks: dict[int, Sink] = {}
        self._numbers = count(1)
        self._outbox: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._closed = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self._sinks)

    def start(self, reservation_id: str, work: Work, ticket: Ticket | None, sink: Sink) -> int:
        """Sends `work`; its news go to `sink`.

        Raises WorkerLostError when the stream is gone, and FaultError for work that cannot be put on the wire.
        """
        if self._closed:
            raise WorkerLostError(self._closed)
        sequence = next(self._numbers)
        self._send(Start(sequence, reservation_id, work, ticket))
        self._sinks[sequence] = sink
        return sequence

    def abort(self, sequence: int) -> None:
        """Ends a sequence that may have ended already; its sink hears nothing more."""
        if self._sinks.pop(sequence, None) is not None and not self._closed:
            self._send(Abort(sequence))

    def writer_lost(self, sequence: int, worker_id: str) -> None:
        """The worker whose KV a sequence pulls is gone; its sink hears a fault, unless the pull is over already."""
        if sequence in self._sinks and not self._closed:
            self._send(WriterLost(sequence, worker_id))

    def hand_over(self, sequence: int) -> bool:
        """A running sequence shall end with a ticket, if it can; its sink hears of it, or of its end. False: nobody can be told."""
        if sequence not in self._sinks or self._closed:
            return False
        self._send(HandOver(sequence))
        return True

    async def run(self, call: Call, hello: Hello) -> None:
        """Serves the stream until it ends, which fails all its sequences at once. Always raises WorkerLostError."""
        self._outbox.appendleft(ATTACH.encode(hello))
        self._news.set()
        reader = asyncio.create_task(self._read(call), name="attach-reader")
        writer = asyncio.create_task(self._write(call), name="attach-writer")
        ways = [reader, writer]
        try:
            # Whichever ends first: a stream that can no longer be written to would leave every new sequence waiting.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if not reader.done():
                # A worker that left in order has said all there was to say before; some of it may be on its way.
                self._closed = self._closed or _end(writer)
                await asyncio.wait({reader}, timeout=LAST_WORDS_S)
            self.close(next(_end(way) for way in ways if way.done()))
        finally:
            for way in ways:
                way.cancel()
            call.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.close("the gateway closed the stream")
        raise WorkerLostError(self._closed)

    def close(self, reason: str) -> None:
        """Fails every sequence. Calling it again changes nothing."""
        self._closed = self._closed or reason
        if not self.ended.done():
            self.ended.set_result(None)
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.lost(self._closed)

    def _send(self, command: Command) -> None:
        self._outbox.append(ATTACH.encode(command))
        self._news.set()

    async def _write(self, call: Call) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._outbox:
                await call.write(self._outbox.popleft())

    async def _read(self, call: Call) -> None:
        async for frame in call:
            self._dispatch(ATTACH.decode_reply(frame))

    def _dispatch(self, frame: Frame) -> None:
        sinks = self._sinks
        for sequence, delta in frame:
            sink = sinks.get(sequence)
            if sink is None:  # aborted here while its news was on the way
                if delta.ticket is not None:
                    self.orphaned(delta.ticket)
                continue
            if delta.finish is not None or delta.fault is not None:
                del sinks[sequence]
            try:
                sink.feed(delta)
            except Exception:
                # One broken sequence must not take down the stream of all the others.
                log.exception("a sequence could not take its news")
                sinks.pop(sequence, None)
                sink.lost("internal error in the gateway")


def _end(way: "asyncio.Task[None]") -> str:
    """Why one way of the stream is over. gRPC cancels whoever reads from a call that it has cancelled."""
    error = None if way.cancelled() else way.exception()
    if error is None or isinstance(error, asyncio.InvalidStateError):  # written to after its end
        return "the worker ended its stream"
    if isinstance(error, grpc.aio.AioRpcError):
        return f"the worker's stream broke: {error.details() or error.code().name}"
    log.error("the stream of a worker failed", exc_info=error)
    return f"the worker's stream failed: {type(error).__name__}: {error}"
