"""A worker finds its gateways, whichever of them was there first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proto.channel import bind, create_server
from proto.join import JoinReply, JoinRequest
from proto.method import register, serve_unary
from proto.services import JOIN
from tandem.worker.join import keep_joining
from tests.tandem.worker.harness import until

REQUEST = JoinRequest("w1", "e1", "127.0.0.1:1")


class Gateway:
    def __init__(self, reply: JoinReply) -> None:
        self.reply = reply
        self.joins: list[JoinRequest] = []

    async def join(self, request: JoinRequest) -> JoinReply:
        self.joins.append(request)
        return self.reply

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[int]:
        server = create_server()
        register(server, [serve_unary(JOIN, self.join)])
        bound = bind(server, "127.0.0.1", port)
        await server.start()
        try:
            yield bound
        finally:
            await server.stop(0)


@asynccontextmanager
async def joining(port: int) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_joining(f"127.0.0.1:{port}", REQUEST))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_announces_again_and_again_as_often_as_it_is_told() -> None:
    gateway = Gateway(JoinReply(True, "", 0.1))
    async with gateway.serving() as port, joining(port):
        await until(lambda: len(gateway.joins) >= 3)
        assert gateway.joins[0] == REQUEST


async def test_a_gateway_cannot_make_it_announce_all_the_time() -> None:
    gateway = Gateway(JoinReply(True, "", 0.0))
    async with gateway.serving() as port, joining(port):
        began_s = asyncio.get_running_loop().time()
        await until(lambda: len(gateway.joins) >= 4)
        assert asyncio.get_running_loop().time() - began_s > 0.2  # the shortest interval is a tenth of a second


async def test_a_gateway_that_comes_later_or_comes_back_is_found() -> None:
    first, second = Gateway(JoinReply(True, "", 0.1)), Gateway(JoinReply(True, "", 0.1))
    async with first.serving() as port:
        pass
    async with joining(port):
        await asyncio.sleep(0.3)
        async with first.serving(port):
            await until(lambda: bool(first.joins))
        async with second.serving(port):
            await until(lambda: bool(second.joins))


async def test_a_refusal_is_asked_again_with_growing_pauses() -> None:
    gateway = Gateway(JoinReply(False, "another model", 0.1))
    async with gateway.serving() as port, joining(port):
        began_s = asyncio.get_running_loop().time()
        await until(lambda: len(gateway.joins) >= 3)
        assert asyncio.get_running_loop().time() - began_s > 0.3
