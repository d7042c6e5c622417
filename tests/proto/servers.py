"""A Prefill server with a scripted answer, on a free loopback port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

from proto.channel import KeepAlive, TlsFiles, bind, create_server, open_channel
from proto.fault import Fault
from proto.method import register, serve_unary
from proto.sampling import Sampling
from proto.services import PREFILL
from proto.standard import add_standard_services
from proto.work import PrefillDone, Work
from tests.waiting import HANG_S

WORK = Work("r1", (1, 2, 3), Sampling(max_tokens=1))
DONE = PrefillDone((7,), ticket=None)


class Script:
    """Answers after a silence; notes a call that was cancelled in it."""

    def __init__(self, silence_s: float = 0.0) -> None:
        self.silence_s = silence_s
        self.cancelled = asyncio.Event()
        self.asked = 0

    async def prefill(self, work: Work) -> PrefillDone | Fault:
        self.asked += 1
        assert work == WORK
        try:
            await asyncio.sleep(self.silence_s)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return DONE


@asynccontextmanager
async def serving(
    script: Script, server: grpc.aio.Server | None = None, tls: TlsFiles | None = None
) -> AsyncIterator[str]:
    server = server or create_server()
    services = register(server, [serve_unary(PREFILL, script.prefill)])
    health = add_standard_services(server, services)
    port = bind(server, "127.0.0.1", 0, tls)
    await server.start()
    await health.set(True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def ask(
    address: str, tls: TlsFiles | None = None, keepalive: KeepAlive | None = None, timeout_s: float = HANG_S
) -> PrefillDone | Fault:
    async with open_channel(address, tls, keepalive) as channel:
        return await PREFILL.unary(channel)(WORK, timeout=timeout_s)
