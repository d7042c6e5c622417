"""Servers under measurement: started, awaited, their CPU and memory read, stopped."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil

from transfer.ports import free_ports

_START_S = 60.0
_STOP_S = 5.0


@contextlib.asynccontextmanager
async def served(
    module: str, *argv: str, path: str, tree: Path | None = None
) -> AsyncIterator[tuple[str, psutil.Process]]:
    """`python -m module argv`, with {port} filled in, once GET `path` answers 200. `tree` is another checkout to run."""
    port = free_ports("127.0.0.1", 1)[0]
    async with running(module, *(part.format(port=port) for part in argv), tree=tree) as process:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url) as client:
            deadline = time.monotonic() + _START_S
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(path)).status_code == 200:
                        break
                if time.monotonic() > deadline:
                    raise SystemExit(f"{module} did not come up")
                await asyncio.sleep(0.1)
        yield url, process


@contextlib.asynccontextmanager
async def running(module: str, *argv: str, tree: Path | None = None) -> AsyncIterator[psutil.Process]:
    quiet = asyncio.subprocess.DEVNULL
    # -m puts the working directory first on the path, before what is installed
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *argv, stdout=quiet, stderr=quiet, cwd=tree or os.getcwd()
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()  # the reference never notices clients that have left
            await process.wait()


def cpu_s(process: psutil.Process) -> float:
    user_s, system_s = process.cpu_times()[:2]
    return float(user_s) + float(system_s)
