"""When the engine's process dies the worker knows at once; when the worker dies nothing of its engine survives."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from engine.base import EngineDeadError
from proto.fault import FaultKind
from proto.work import Work
from proto.worker import Role
from tests.engine.vllm.conftest import started
from tests.engine.vllm.driver import Driver, greedy, prefill_sampling
from tests.waiting import HANG_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="package")]

_WORKER = """
import asyncio
from proto.worker import Role
from tests.engine.vllm.conftest import started

async def main():
    driver = await started("orphan-0", Role.BOTH, tp=2)
    print("ready", flush=True)
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


def _engine_processes(of: int) -> set[psutil.Process]:
    return {child for child in psutil.Process(of).children(recursive=True) if "VLLM" in " ".join(child.cmdline())}


@dataclass(slots=True)
class Mortal:
    """An engine of its own, with little KV, and its process."""

    driver: Driver
    core: psutil.Process


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def mortal() -> AsyncIterator[Mortal]:
    before = _engine_processes(os.getpid())
    driver = await started("mortal-0", Role.BOTH, kv_blocks=9)
    (core,) = _engine_processes(os.getpid()) - before
    yield Mortal(driver, core)
    await driver.close()
    await driver.engine.stop()


async def test_preempted_answers_are_right_and_what_was_run_again_is_counted(mortal: Mortal, decode: Driver) -> None:
    assert mortal.driver.info.blocks_total == 9
    prompts = [tuple(range(start, start + 200)) for start in (10_000, 11_000, 12_000, 13_000)]
    answers = await asyncio.gather(*(mortal.driver.run(prompt, greedy(300)) for prompt in prompts))
    expected = await asyncio.gather(*(decode.run(prompt, greedy(300)) for prompt in prompts))
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in expected]
    stats = mortal.driver.engine.stats()
    assert stats.preemptions >= 1
    assert stats.recomputed_tokens >= 200
    assert stats.generated_tokens == 4 * 300
    assert stats.prompt_tokens == 4 * 200
    assert decode.engine.stats().preemptions == 0
    await mortal.driver.settled()


async def test_a_killed_engine_is_noticed_by_its_worker_and_by_its_readers(mortal: Mortal, decode: Driver) -> None:
    """The worker learns at once, every later call says so, and who pulls from it gets a fault for that request alone."""
    writer = mortal.driver
    assert (await decode.engine.warm(writer.info)).ok  # so that the reader finds out only when it reads
    prompts = [tuple(range(start, start + 300)) for start in (1000, 2000)]
    tickets = [(await writer.run(prompt, prefill_sampling(), hold=True)).ticket for prompt in prompts]
    assert (await decode.run(prompts[0], greedy(2), pull=tickets[0])).last.fault is None
    running = Work(writer.name(), (5, 6, 7), greedy(900))
    writer.submit(running)
    await writer.next(running.request_id)
    bystander = asyncio.create_task(decode.run((5, 6, 7), greedy(400)))

    mortal.core.send_signal(signal.SIGKILL)

    async with asyncio.timeout(HANG_S):
        await writer.dead.wait()
    await _every_call_raises(writer)
    for prompt, ticket in zip(prompts[1:], tickets[1:], strict=True):
        answer = await decode.run(prompt, greedy(2), pull=ticket)
        assert answer.last.fault is not None
        assert answer.last.fault.kind is FaultKind.KV_LOAD_FAILED
    assert len((await bystander).tokens) == 400
    assert len((await decode.run(prompts[1], greedy(2))).tokens) == 2
    await decode.settled()


async def _every_call_raises(driver: Driver) -> None:
    with pytest.raises(EngineDeadError):
        driver.submit(Work(driver.name(), (5,), greedy(1)))
    with pytest.raises(EngineDeadError):
        driver.engine.stats()
    for call in (driver.engine.release("any"), driver.engine.abort("any"), driver.engine.warm(driver.info)):
        with pytest.raises(EngineDeadError):
            await call


async def test_no_engine_process_survives_a_killed_worker(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    root = Path(__file__).parents[3]
    worker = subprocess.Popen(  # noqa: ASYNC220  it is killed, not awaited
        [sys.executable, str(script)], stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}
    )
    try:
        assert worker.stdout is not None
        ready = await asyncio.to_thread(worker.stdout.readline)
        assert ready == b"ready\n"
        engine = _engine_processes(worker.pid)
        assert len(engine) == 3  # the engine's core and its two ranks
        assert not any(os.getpgid(process.pid) == os.getpgid(worker.pid) for process in engine)  # Ctrl-C drains first
    finally:
        worker.kill()
        worker.wait()
    deadline = time.monotonic() + HANG_S
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in engine):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
