"""The process as a supervisor sees it: a ready line, a drain on SIGTERM, a bad exit when the engine dies."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proto import services
from proto.channel import open_channel
from proto.fault import FaultKind
from proto.work import FinishReason
from tests.tandem.worker.harness import Client, Stream, until, work
from tests.waiting import HANG_S

PROGRAM = """
import asyncio, json, sys
from tandem.process import serve
from tandem.worker.config import WorkerConfig
from tandem.worker.process import run_worker
config = WorkerConfig.model_validate(json.loads(sys.argv[1]))
serve(lambda stop: run_worker(config, stop))
assert not {"torch", "vllm"} & set(sys.modules), "the simulated worker imported the real engine"
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready

    async def line(self, event: str) -> dict[str, Any]:
        line = await _line(self.process)
        assert line["event"] == event, line
        return line


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    raw = await asyncio.wait_for(process.stdout.readline(), HANG_S)
    if not raw:
        assert process.stderr is not None
        raise AssertionError((await process.stderr.read()).decode())
    line: dict[str, Any] = json.loads(raw)
    return line


@asynccontextmanager
async def child(**document: Any) -> AsyncIterator[Child]:
    engine = {"backend": "simulated", **document.pop("engine", {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps({"worker_id": "w1", **document, "engine": engine}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Child(process, await _line(process))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def connected(served: Child) -> AsyncIterator[tuple[Client, Stream]]:
    async with open_channel(served.ready["address"]) as channel:
        client = Client(channel, await services.DESCRIBE.unary(channel)(None, timeout=HANG_S), "g1")
        async with client.attached() as stream:
            yield client, stream


@pytest.mark.slow
async def test_sigterm_lets_running_and_promised_answers_finish_and_exits_with_zero() -> None:
    async with child(role="both") as worker:
        assert worker.ready["event"] == "ready"
        async with connected(worker) as (client, stream):
            assert worker.ready["epoch"] == client.info.epoch
            reservation = await client.reserve(40, 400, sequences=2)
            running = await stream.start(reservation, work("r1", 40, 200))
            await stream.stories[running].begun.wait()
            worker.process.send_signal(signal.SIGTERM)
            await worker.line("draining")
            promised = await stream.start(reservation, work("r2", 40, 20))
            for sequence in (running, promised):
                assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH
            assert (await worker.line("drained"))["outstanding"] == 0
            assert await asyncio.wait_for(worker.process.wait(), HANG_S) == 0


@pytest.mark.slow
async def test_a_drain_ends_at_its_limit_whatever_still_runs() -> None:
    async with child(drain_s=0.3) as worker, connected(worker) as (client, stream):
        await stream.start(await client.reserve(40, 8000), work("r1", 40, 8000))
        await stream.stories[1].begun.wait()
        worker.process.send_signal(signal.SIGTERM)
        await worker.line("draining")
        assert (await worker.line("drained"))["outstanding"] >= 1
        assert await asyncio.wait_for(worker.process.wait(), HANG_S) == 0


@pytest.mark.slow
async def test_b49_an_engine_that_dies_fails_what_runs_and_the_process_exits_badly(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("faults: [{kind: die, after_tokens: 20}]")
    async with child(engine={"faults": str(script)}) as worker, connected(worker) as (client, stream):
        for number in range(3):
            await stream.start(await client.reserve(40, 500), work(f"r{number}", 40, 500, seed=number))
        for story in stream.stories.values():
            fault = (await story.end()).fault
            assert fault is not None
            assert fault.kind is FaultKind.ENGINE_DEAD
        assert (await worker.line("engine_dead"))["worker_id"] == "w1"
        assert await asyncio.wait_for(worker.process.wait(), HANG_S) != 0


@pytest.mark.slow
async def test_kill_breaks_the_stream_at_once() -> None:
    async with child() as worker, connected(worker) as (client, stream):
        await stream.start(await client.reserve(40, 8000), work("r1", 40, 8000))
        await stream.stories[1].begun.wait()
        worker.process.kill()
        await until(lambda: stream.error is not None)
