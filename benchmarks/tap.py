"""The engine's own step gap, as the barest client of its stream sees it: gRPC, and nothing of a gateway."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator

from proto import services
from proto.channel import open_channel
from proto.reservation import Reservation, ReserveRequest
from proto.sampling import Sampling
from proto.work import Command, Frame, Hello, Start, Work

_GATEWAY = "tap"


@contextlib.asynccontextmanager
async def tap(address: str, output_tokens: int) -> AsyncIterator[list[float]]:
    """One sequence of its own beside the load; the list grows by one gap a frame."""
    gaps_s: list[float] = []
    channel = open_channel(address)
    try:
        info = await services.DESCRIBE.unary(channel)(None, timeout=10)
        request = ReserveRequest(_GATEWAY, f"tap-{time.monotonic_ns()}", 8, output_tokens, 30.0, 1)
        granted = await services.RESERVE.unary(channel)(request, timeout=10)
        assert isinstance(granted, Reservation), granted
        call = services.ATTACH.two_way(channel)()
        await call.write(Hello(_GATEWAY, info.epoch))
        sampling = Sampling(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
        work = Work(request.request_id, tuple(range(97, 105)), sampling)
        start: Command = Start(1, granted.reservation_id, work, None)
        await call.write(start)
        reader = asyncio.create_task(_read(call, gaps_s))
        try:
            yield gaps_s
        finally:
            reader.cancel()
            call.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    finally:
        await channel.close()


async def _read(call: AsyncIterable[Frame], gaps_s: list[float]) -> None:
    last_s = 0.0
    async for _ in call:
        now_s = time.perf_counter()
        if last_s:
            gaps_s.append(now_s - last_s)
        last_s = now_s
