"""Whatever goes wrong with a call is one of three failures."""

import grpc.aio
import pytest

from gateway.cluster.client import WorkerClient, WorkerLostError
from proto.sampling import Sampling
from proto.work import Work

WORK = Work("w", (1, 2, 3), Sampling(4))


async def test_a_channel_that_has_been_closed_is_a_lost_worker() -> None:
    client = WorkerClient(grpc.aio.insecure_channel("127.0.0.1:1"))
    await client.close()
    with pytest.raises(WorkerLostError):
        await client.prefill(WORK, 1.0)
    with pytest.raises(WorkerLostError):
        await anext(client.begin(WORK))
