"""One child process: its own process group, its own log, and no survivors."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

#: How much of a log's end is kept for the report of a death.
TAIL_LINES = 15
_TAIL_BYTES = 16_384
_CLEAR_POLL_S = 0.02
_CLEAR_POLLS = 25


class Kind(StrEnum):
    GATEWAY = "gateway"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start. `document` goes to its standard input, so that no secret is on a command line or a disk."""

    name: str
    kind: Kind
    argv: tuple[str, ...]
    log: Path
    document: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended."""

    name: str
    returncode: int
    ran_s: float
    tail: tuple[str, ...]

    @property
    def cause(self) -> str:
        if self.returncode >= 0:
            return f"exit status {self.returncode}"
        number = -self.returncode
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = " (often the kernel, out of memory)" if number == signal.SIGKILL else ""
        return f"killed by {name}{hint}"


class Child:
    """A running child. Create with `start`."""

    def __init__(self, spec: ChildSpec, process: asyncio.subprocess.Process, log_offset: int) -> None:
        self.spec = spec
        self.process = process
        self.pid = process.pid
        self._log_offset = log_offset
        self._started_s = asyncio.get_running_loop().time()

    @classmethod
    async def start(cls, spec: ChildSpec) -> "Child":
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with spec.log.open("ab") as log:
            offset = log.tell()
            process = await asyncio.create_subprocess_exec(
                *spec.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **spec.env},
                start_new_session=True,  # a Ctrl-C at the terminal must reach the supervisor only
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died at once; `wait` tells
            process.stdin.write(spec.document)
            await process.stdin.drain()
        process.stdin.close()
        return cls(spec, process, offset)

    async def wait(self) -> Death:
        """Waits for the end, then clears whatever the child left in its group."""
        returncode = await self.process.wait()
        await self._clear_group()
        ran_s = asyncio.get_running_loop().time() - self._started_s
        return Death(self.spec.name, returncode, ran_s, tail(self.spec.log, self._log_offset))

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, timeout_s: float) -> bool:
        """Asks, waits, insists. False when it had to be killed."""
        self.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await self.process.wait()
                return True
        except TimeoutError:
            self.kill_group()
            await self.process.wait()
            return False
        finally:
            await self._clear_group()

    async def _clear_group(self) -> None:
        """Kills what the child left behind, and waits (within reason) until it is gone."""
        for _ in range(_CLEAR_POLLS):
            self.kill_group()
            self._reap_orphans()
            try:
                os.killpg(self.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            await asyncio.sleep(_CLEAR_POLL_S)

    def _reap_orphans(self) -> None:
        # they became ours by adopt_orphans(); the child itself has been reaped by asyncio
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass


def tail(log: Path, offset: int = 0, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last non-empty lines that were written after `offset`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(offset, end - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple([line.rstrip() for line in text.splitlines() if line.strip()][-lines:])
