"""A local layout that the comparison starts itself, with `tandem up`, and stops again."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from loadgen.arms.base import Observation, Watch
from loadgen.arms.url import ClientSettings, UrlArm
from loadgen.client.target import Target, get
from loadgen.client.wire import ConnectionLostError, Pool
from loadgen.failure import LoadgenError
from loadgen.schedule import Schedule
from transfer.ports import free_ports


@dataclass
class LocalArm:
    """`arguments` go to `tandem up`; `command` is what stands before them."""

    name: str
    gpus: float
    arguments: str
    target: Target = field(default_factory=lambda: Target("http://127.0.0.1:0"))
    client: ClientSettings = field(default_factory=ClientSettings)
    ready_timeout_s: float = 600.0
    patience_s: float = 30.0
    command: tuple[str, ...] = (sys.executable, "-m", "tandem", "up")
    _process: asyncio.subprocess.Process | None = None
    _inner: UrlArm | None = None
    _folder: "TemporaryDirectory[str] | None" = None

    @property
    def origin(self) -> str:
        return f"tandem up {self.arguments}".strip()

    async def __aenter__(self) -> Self:
        (port,) = free_ports("127.0.0.1", 1)
        self._folder = TemporaryDirectory(prefix="loadgen-arm-")
        log = Path(self._folder.name) / "output.log"
        with log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                *shlex.split(self.arguments),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                # Ctrl-C is ours: the layout must outlive it until the partial report has been written
                start_new_session=True,
            )
        try:
            target = replace(self.target, base=f"http://127.0.0.1:{port}")
            await self._wait_ready(target, log)
            self._inner = UrlArm(self.name, self.gpus, target, self.client)
            await self._inner.__aenter__()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def stop(self) -> None:
        if self._inner is not None:
            self._inner.stop()

    async def observe(self, schedule: Schedule, salt: int, watch: Watch | None = None) -> Observation:
        assert self._inner is not None, "enter the arm first"
        return await self._inner.observe(schedule, salt, watch)

    async def _wait_ready(self, target: Target, log: Path) -> None:
        assert self._process is not None
        pool = Pool(target.endpoint, connect_timeout_s=1.0)
        deadline = asyncio.get_running_loop().time() + self.ready_timeout_s
        try:
            while not await _is_ready(pool, target):
                if self._process.returncode is not None:
                    raise LoadgenError(
                        f"arm {self.name}: `{self.origin}` ended with code {self._process.returncode}: {_last_words(log)}"
                    )
                if asyncio.get_running_loop().time() > deadline:
                    raise LoadgenError(f"arm {self.name}: `{self.origin}` was not ready in {self.ready_timeout_s:g} s")
                await asyncio.sleep(0.2)
        finally:
            pool.close()

    async def _end(self) -> None:
        """Asks for a clean end, then insists: nothing may be left running."""
        process = self._process
        if process is not None and process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number) if number is signal.SIGKILL else process.send_signal(number)
                try:
                    await asyncio.wait_for(process.wait(), self.patience_s)
                    break
                except TimeoutError:
                    continue
        self._process = self._inner = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class _Status:
    status = 0

    def head(self, status: int, headers: dict[str, str], at_s: float) -> None:
        self.status = status

    def body(self, data: bytes, at_s: float) -> None:
        pass

    def complete(self, at_s: float) -> None:
        pass


async def _is_ready(pool: Pool, target: Target) -> bool:
    answer = _Status()
    try:
        async with asyncio.timeout(5):
            await pool.exchange(get(target, "/readyz"), answer)
    except (ConnectionLostError, TimeoutError):
        return False
    return answer.status == 200


def _last_words(log: Path) -> str:
    """The last line, or what stands in the last box: wrong options are told in one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    framed = [line.strip("│ ") for line in lines if line.startswith("│")]
    told = " ".join(framed) if lines and lines[-1].startswith("╰") else "".join(lines[-1:])
    return told[:300] or "no output"
