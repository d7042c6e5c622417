"""uvicorn's HTTP protocol, closed against clients that hold a connection without asking, or ask twice at once."""

from asyncio import TimerHandle, Transport
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http.errors import error_bytes
from gateway.request.errors import Reason, RequestError

#: From the first byte of a connection, or of a further request on it, until the request's head is complete.
HEAD_S = 30.0
#: Of a head, and of all else that is no body (trailers, what chunks say of themselves), until more of the body comes: one
#: field of 60 MB held up the event loop for 7 s, since parsing it copies it again and again.
MAX_HEAD_BYTES = 64 * 1024
#: Lines of a head: each is looked at by every layer that looks for one.
MAX_FIELDS = 100
#: After an answer to what was not read to its end: for so long the rest of it is taken and dropped. Closed at once,
#: the connection would be reset, and the client might never see why.
PARTING_S = 5.0
#: Where the scope says whether more of the body is to come.
UNREAD = "unread"


class GatewayProtocol(HttpToolsProtocol):
    """One request at a time. What a client sends behind it before its answer has ended is dropped, and the
    connection closes after the answer, as HTTP allows: uvicorn would stop reading meanwhile, and a client that
    leaves would go unnoticed while its request holds KV (B-34).
    """

    _late: TimerHandle | None = None
    _bodiless_bytes = 0
    _in_head = False
    _deaf = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn narrows asyncio's type in the same way
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._bodiless_bytes += len(data)
        super().data_received(data)
        if self._deaf:
            return
        if self._late is None and not self._answering and not self.transport.is_closing():
            self._watch_head()
        if self._bodiless_bytes > MAX_HEAD_BYTES:
            if self._answering:
                self.send_400_response(f"What is no part of the body is longer than {MAX_HEAD_BYTES} bytes.")
            else:
                self._head_long()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's says None, asyncio takes a bool
        """Whether to keep the connection. A client that has only ended its own side looks like one that left. For the
        latter a POST would hold KV until its answer ended (B-34), a GET holds nothing and ends soon.
        """
        if self._deaf or not self._answering or self.scope["method"] not in ("GET", "HEAD"):
            return False
        self.cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        if self._answering:
            self._deaf = True
            self.cycle.keep_alive = False
        if not self._deaf:
            self._in_head = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers are dropped: uvicorn would put them with the fields of the head, which has been read by then."""
        if self._deaf or not self._in_head:
            return
        super().on_header(name, value)
        if len(self.headers) > MAX_FIELDS:
            self._refuse_head(f"The request's head has more than {MAX_FIELDS} fields.")

    def on_headers_complete(self) -> None:
        if not self._deaf and self._head_size() > MAX_HEAD_BYTES:
            self._head_long()
        if not self._deaf:
            self._in_head = False
            self._bodiless_bytes = 0
            self._head_done()
            super().on_headers_complete()
            self.cycle.transport = _Parting(self.transport, self._part)  # type: ignore[assignment]  # of a transport it has what a cycle calls
            self.scope["state"][UNREAD] = self._unread

    def on_body(self, body: bytes) -> None:
        if not self._deaf:
            self._bodiless_bytes = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._deaf:
            self._bodiless_bytes = 0
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """In the shape clients parse errors in; never into the middle of an answer."""
        if self._answering:
            self._deaf = True
            if self.cycle.response_started or not self.cycle.more_body:
                self.cycle.keep_alive = False
                return
            self.cycle.disconnected = True  # a body that cannot be read: nobody waits for the rest of it
            self.cycle.message_event.set()
        self._refuse(b"400 Bad Request", RequestError(Reason.INVALID_REQUEST, msg))

    def on_response_complete(self) -> None:
        self._forget()
        super().on_response_complete()

    def _forget(self) -> None:
        """Exchange and connection hold each other no longer: both are freed without the collector."""
        if self.cycle is not None:
            self.cycle.transport = self.transport
            self.scope["state"].pop(UNREAD, None)

    def _unread(self) -> bool:
        return self.cycle.more_body

    def _part(self) -> None:
        """An exchange ends its connection."""
        if self.cycle.more_body and self.cycle.response_complete and not self._deaf:
            self._leave()
        else:
            self.transport.close()

    def _leave(self) -> None:
        """All is said, and the client may still be sending."""
        self._deaf = True
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(PARTING_S, self.transport.close)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_head(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self._head_late)

    def _head_done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_late(self) -> None:
        self._late = None
        message = f"The request's head took longer than {HEAD_S:g} s to arrive."
        self._refuse(b"408 Request Timeout", RequestError(Reason.INVALID_REQUEST, message))

    def _head_size(self) -> int:
        """Of the head that has been read: one that came whole, in one piece, too."""
        return len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])

    def _head_long(self) -> None:
        self._refuse_head(f"The request's head is longer than {MAX_HEAD_BYTES} bytes.")

    def _refuse_head(self, message: str) -> None:
        self._refuse(b"431 Request Header Fields Too Large", RequestError(Reason.INVALID_REQUEST, message))

    def _refuse(self, status: bytes, error: RequestError) -> None:
        self._head_done()
        body = error_bytes(error)
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self._leave()


class _Parting:
    """The transport as one exchange has it: its end is not the end of the connection while the client still sends."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close
