"""The supervisor's end of the sentinel: tells it which process groups must not outlive us."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

_SENTINEL = Path(__file__).with_name("sentinel.py")


class Guard:
    """Registered groups are stopped should this process die without saying goodbye."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin

    def watch(self, group: int) -> None:
        self._write(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._write(f"-{group}\n")

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
            self._stdin.write(line.encode())


@contextlib.asynccontextmanager
async def guard() -> AsyncIterator[Guard]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(_SENTINEL), stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        yield Guard(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
