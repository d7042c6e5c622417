"""A message that cannot be encoded or understood is a fault of that call, never an empty message or no reply at all."""

from dataclasses import replace
from typing import Any

import grpc.aio
import pytest

from proto.channel import open_channel
from proto.convert import WireError
from proto.fault import FaultError, FaultKind
from proto.method import Method
from proto.sampling import Sampling
from proto.services import PREFILL
from proto.work import PrefillDone, Work
from tests.proto.servers import DONE, WORK, Script, serving


async def fault_of(method: Method[Work, Any], work: Work, script: Script | None = None) -> FaultKind:
    async with serving(script or Script()) as address, open_channel(address) as channel:
        with pytest.raises(FaultError) as caught:
            await method.ask(channel, work, 5.0)
        return caught.value.fault.kind


async def test_asking_is_calling() -> None:
    async with serving(Script()) as address, open_channel(address) as channel:
        assert await PREFILL.ask(channel, WORK, 5.0) == DONE


@pytest.mark.parametrize("work", [replace(WORK, tokens=(-1,)), replace(WORK, sampling=Sampling(2**40))])
async def test_a_request_that_cannot_be_encoded_never_leaves(work: Work) -> None:
    """gRPC alone would send an empty message, and the worker would answer that."""
    script = Script()
    assert await fault_of(PREFILL, work, script) is FaultKind.INVALID_REQUEST
    assert script.asked == 0


async def test_a_reply_that_cannot_be_understood_is_a_fault_and_not_none() -> None:
    def refuse(data: bytes) -> PrefillDone:
        raise WireError("a reply of another version")

    assert await fault_of(replace(PREFILL, decode_reply=refuse), WORK) is FaultKind.INTERNAL


async def test_a_request_that_cannot_be_understood_is_the_requests_fault() -> None:
    """Not the worker's: it must not count against its health (B-44)."""
    script = Script()
    garbage = replace(PREFILL, encode_request=lambda work: b"\xff\xff\xff")
    assert await fault_of_call(garbage, script) == "invalid_request"
    assert script.asked == 0


async def fault_of_call(method: Method[Work, Any], script: Script) -> str:
    async with serving(script) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method.ask(channel, WORK, 5.0)
        return (caught.value.details() or "").partition(":")[0]
