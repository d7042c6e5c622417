"""One RPC of one service, in domain nouns at both ends."""

from __future__ import annotations  # the types of grpc are generic for the type checker only

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from proto.channel import MAX_MESSAGE_BYTES
from proto.fault import REQUEST_FAULTS, Fault, FaultError, FaultKind

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """How to put the request noun Q and the reply noun R of one RPC on the wire and take them off it."""

    service: str
    name: str
    encode_request: Callable[[Q], bytes]
    decode_request: Callable[[bytes], Q]
    encode_reply: Callable[[R], bytes]
    decode_reply: Callable[[bytes], R]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    @property
    def encoded(self) -> Method[bytes, bytes]:
        """The same RPC in bytes.

        gRPC sends an empty message in place of one that it cannot encode, and hands out None for one that it cannot
        decode. So whoever serves real work encodes and decodes for himself, one message at a time.
        """
        return Method(self.service, self.name, _same, _same, _same, _same)

    def encode(self, request: Q) -> bytes:
        """Raises FaultError for a request that cannot be put on the wire: it is alone at fault."""
        try:
            data = self.encode_request(request)
        except Exception as error:
            raise FaultError(Fault(FaultKind.INVALID_REQUEST, f"cannot be put on the wire: {error}")) from error
        if len(data) > MAX_MESSAGE_BYTES:
            message = f"{len(data)} bytes are more than the {MAX_MESSAGE_BYTES} of one message"
            raise FaultError(
                Fault(FaultKind.INVALID_REQUEST, message, {"bytes": len(data), "limit": MAX_MESSAGE_BYTES})
            )
        return data

    async def ask(self, channel: grpc.aio.Channel, request: Q, timeout_s: float | None = None) -> R:
        """One call. Raises AioRpcError, or FaultError for a request or a reply that is no message of ours."""
        return self.understood(await self.encoded.unary(channel)(self.encode(request), timeout=timeout_s))

    def understood(self, reply: bytes) -> R:
        """Raises FaultError for a reply that is no message of ours."""
        try:
            return self.decode_reply(reply)
        except Exception as error:
            message = f"the reply to {self.name} cannot be understood: {error}"
            raise FaultError(Fault(FaultKind.INTERNAL, message)) from error

    def unary(self, channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable[Q, R]:
        return channel.unary_unary(self.path, self.encode_request, self.decode_reply)

    def server_stream(self, channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamMultiCallable[Q, R]:
        return channel.unary_stream(self.path, self.encode_request, self.decode_reply)

    def two_way(self, channel: grpc.aio.Channel) -> grpc.aio.StreamStreamMultiCallable[Q, R]:
        return channel.stream_stream(self.path, self.encode_request, self.decode_reply)


def _same(data: bytes) -> bytes:
    return data


@dataclass(frozen=True, slots=True)
class Bound:
    """A method with the code that serves it."""

    method: Method[Any, Any]
    handler: grpc.RpcMethodHandler[Any, Any]


async def _refuse(context: grpc.aio.ServicerContext[Q, R], error: FaultError) -> None:
    code = grpc.StatusCode.FAILED_PRECONDITION
    if error.fault.kind in REQUEST_FAULTS:
        code = grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(code, str(error))


def serve_unary(method: Method[Q, R], serve: Callable[[Q], Awaitable[R]]) -> Bound:
    """`serve` is cancelled when the caller goes away before it returns.

    A caller that goes away later cannot be told from one that got the reply: whoever hands out something
    that has to be given back must accept its return by the request's own id, too.
    """

    async def behaviour(data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return method.encode_reply(await serve(_decoded(method, data)))
        except FaultError as error:
            await _refuse(context, error)
            raise

    return Bound(method, grpc.unary_unary_rpc_method_handler(behaviour, _same, _same))


def _decoded(method: Method[Q, R], data: bytes) -> Q:
    try:
        return method.decode_request(data)
    except Exception as error:
        message = f"the request to {method.name} cannot be understood: {error}"
        raise FaultError(Fault(FaultKind.INVALID_REQUEST, message)) from error


def serve_stream(method: Method[Q, R], serve: Callable[[Q], AsyncIterator[R]]) -> Bound:
    async def behaviour(data: bytes, context: grpc.aio.ServicerContext[bytes, R]) -> None:
        await _pump(context, lambda: serve(_decoded(method, data)))

    return Bound(method, grpc.unary_stream_rpc_method_handler(behaviour, _same, method.encode_reply))


def serve_two_way(method: Method[Q, R], serve: Callable[[AsyncIterator[Q]], AsyncIterator[R]]) -> Bound:
    async def behaviour(requests: AsyncIterator[Q], context: grpc.aio.ServicerContext[Q, R]) -> None:
        await _pump(context, lambda: serve(requests))

    return Bound(method, grpc.stream_stream_rpc_method_handler(behaviour, method.decode_request, method.encode_reply))


async def _pump(context: grpc.aio.ServicerContext[Q, R], replies: Callable[[], AsyncIterator[R]]) -> None:
    # Written by hand rather than handing the generator to gRPC, which leaves it to the garbage collector when
    # the stream is cancelled in the middle of a write.
    try:
        async with aclosing(replies()) as stream:  # type: ignore[type-var]  # generators, behind the wider type, have aclose
            async for reply in stream:
                await context.write(reply)
    except FaultError as error:
        await _refuse(context, error)


def register(server: grpc.aio.Server, methods: list[Bound]) -> set[str]:
    """Adds the methods to a server and returns the full names of their services."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for bound in methods:
        services.setdefault(bound.method.service, {})[bound.method.name] = bound.handler
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, handlers) for service, handlers in services.items()]
    )
    return set(services)
