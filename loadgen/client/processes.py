"""Runs a schedule in this process or over several, and gathers results as they come."""

import asyncio
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

import uvloop

from loadgen.client.runner import Job, Progress, Runner, slices
from loadgen.failure import LoadgenError
from loadgen.result import Result

#: From "everybody is ready" to the first possible send.
_LEAD_S = 1.0
_BATCH_S = 0.2


@dataclass(slots=True)
class Gathered:
    """`complete` is False when the run was stopped before its end. `origin_s` is on the monotonic clock."""

    results: list[Result] = field(default_factory=list)
    complete: bool = True
    origin_s: float = 0.0


class Execution:
    """One run of one job. `stop` may be called from anywhere, also from a signal handler."""

    def __init__(
        self,
        job: Job,
        processes: int = 1,
        watch: Callable[[Progress, int], None] | None = None,
        lead_s: float = _LEAD_S,
    ) -> None:
        self._job = job
        self._lead_s = lead_s
        self._processes = processes
        self._watch = watch or (lambda _progress, _results: None)
        self._stop = threading.Event()
        self.gathered = Gathered()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> Gathered:
        """Results sorted by index. Requests that were never sent have none."""
        if self._processes <= 1:
            await self._here()
        else:
            await self._there()
        self.gathered.results.sort(key=lambda r: r.index)
        self.gathered.complete = not self._stop.is_set()
        return self.gathered

    async def _here(self) -> None:
        self.gathered.origin_s = monotonic() + self._lead_s
        job = replace(self._job, origin_s=self.gathered.origin_s)
        runner = Runner(job, self.gathered.results.append)
        running = asyncio.create_task(runner.run())
        while not running.done():
            await asyncio.wait({running}, timeout=_BATCH_S)
            self._watch(runner.progress, len(self.gathered.results))
            if self._stop.is_set():
                runner.stop()
        running.result()

    async def _there(self) -> None:
        job = self._job
        parts = slices(job.requests, self._processes)
        shares = [job.concurrency // len(parts) + (i < job.concurrency % len(parts)) for i in range(len(parts))]
        jobs = [
            replace(job, requests=part, concurrency=max(1, share) if job.concurrency else 0)
            for part, share in zip(parts, shares, strict=True)
        ]
        children = [_Child(part) for part in jobs]
        try:
            for child in children:
                await asyncio.to_thread(child.wait_ready)
            self.gathered.origin_s = monotonic() + self._lead_s
            for child in children:
                child.start(self.gathered.origin_s)
            await self._collect(children)
        finally:
            for child in children:
                child.close()

    async def _collect(self, children: "list[_Child]") -> None:
        reading = [asyncio.create_task(asyncio.to_thread(c.read, self.gathered.results)) for c in children]
        told = False
        pending = set(reading)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_BATCH_S)
            sums = Progress(sum(c.progress.sent for c in children), sum(c.progress.ended for c in children))
            self._watch(sums, len(self.gathered.results))
            if self._stop.is_set() and not told:
                told = True
                for child in children:
                    child.tell_stop()
        for task in reading:
            task.result()


class _Child:
    """The parent's side of one process."""

    def __init__(self, job: Job) -> None:
        # spawn: a fork would copy the parent's running loop and threads
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._job = job
        self.progress = Progress()
        self._process = context.Process(target=_main, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def wait_ready(self) -> None:
        self._receive()

    def start(self, origin_s: float) -> None:
        self._pipe.send(replace(self._job, origin_s=origin_s))

    def tell_stop(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send("stop")

    def read(self, into: list[Result]) -> None:
        """Until the child says it is done. list.extend is atomic, so readers may share the list."""
        while True:
            message = self._receive()
            if message is None:
                return
            results, self.progress = message
            into.extend(results)

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            raise LoadgenError(f"a load process died (exit code {self._process.exitcode})") from None

    def close(self) -> None:
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(pipe: "Connection[Any, Any]") -> None:
    """The child. The parent handles Ctrl-C for all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send("ready")
    job = pipe.recv()
    uvloop.run(_serve(pipe, job))
    pipe.send(None)
    pipe.close()


async def _serve(pipe: "Connection[Any, Any]", job: Job) -> None:
    loop = asyncio.get_running_loop()
    batch: list[Result] = []
    runner = Runner(job, batch.append)

    def told() -> None:
        loop.remove_reader(pipe.fileno())
        runner.stop()

    loop.add_reader(pipe.fileno(), told)
    running = asyncio.create_task(runner.run())
    while not running.done():
        await asyncio.wait({running}, timeout=_BATCH_S)
        ready, batch[:] = list(batch), []
        pipe.send((ready, runner.progress))
    loop.remove_reader(pipe.fileno())
    running.result()
