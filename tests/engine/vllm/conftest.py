"""Three real engines on the tiny model, shared by every test of this package: a start costs many seconds."""

import os
from collections.abc import AsyncIterator

import pytest_asyncio

from engine.base import WorkerIdentity
from engine.config import EngineConfig
from engine.vllm import VllmEngine
from proto.worker import Role
from tests.engine.vllm.driver import Driver
from tests.models import tiny_llama

#: Long enough for a busy machine, except on the engine that tests let expire.
SHORT_LEASE_S = 8.0


async def started(
    worker_id: str, role: Role, tp: int = 1, lease_s: float = 30.0, kv_blocks: int | None = None
) -> Driver:
    config = EngineConfig(
        model=str(tiny_llama()),
        tp=tp,
        kv_cache_gib=0.5 / tp,
        kv_blocks=kv_blocks,
        kv_lease_s=lease_s,
        omp_threads=1,
    )
    engine = VllmEngine(config, WorkerIdentity(worker_id, os.urandom(4).hex(), role))
    return Driver(engine, await engine.start())


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def prefill() -> AsyncIterator[Driver]:
    driver = await started("prefill-0", Role.PREFILL)
    yield driver
    await driver.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def decode() -> AsyncIterator[Driver]:
    driver = await started("decode-0", Role.DECODE)
    yield driver
    await driver.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def wide() -> AsyncIterator[Driver]:
    """TP 2, with a lease short enough to watch it end."""
    driver = await started("wide-0", Role.BOTH, tp=2, lease_s=SHORT_LEASE_S)
    yield driver
    await driver.close()
