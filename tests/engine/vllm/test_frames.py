"""What the owner of a request sees when it aborts and asks again under the same id."""

import asyncio

from engine.base import EngineOutput, WorkerIdentity
from engine.config import EngineConfig
from engine.vllm import VllmEngine
from engine.vllm.outputs import Live
from proto.sampling import Sampling
from proto.work import FinishReason, SequenceDelta, Work
from proto.worker import Role
from tests.waiting import HANG_S


def _live(core_id: str) -> Live:
    return Live(Work("r", (1,), Sampling(max_tokens=1)), core_id)


def _end(token: int) -> EngineOutput:
    return EngineOutput("r", SequenceDelta((token,), finish=FinishReason.LENGTH))


async def test_an_aborted_end_that_nobody_had_read_is_not_taken_for_the_next_requests_b32() -> None:
    engine = VllmEngine(EngineConfig(), WorkerIdentity("w", "e", Role.BOTH))
    old, new = _live("r.1"), _live("r.2")
    old.aborted = True
    engine._live["r"] = new
    engine._frames.put_nowait([(old, _end(1))])
    engine._frames.put_nowait([(new, _end(2))])
    frames = engine.frames()
    async with asyncio.timeout(HANG_S):
        (output,) = await anext(frames)
    assert output.delta.tokens == (2,)
    assert engine._live == {}
    await engine.stop()
