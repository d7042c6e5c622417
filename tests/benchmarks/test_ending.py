"""A benchmark that is told to end takes along what it has started."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import benchmarks
from tests.waiting import HANG_S, await_true

_ROOT = Path(benchmarks.__file__).parents[1]
_STARTS_SOMETHING = """
import asyncio, uvloop
from benchmarks.ending import sigterm_as_ctrl_c

async def main():
    child = await asyncio.create_subprocess_exec("sleep", "900", start_new_session=True)
    try:
        await child.wait()
    finally:
        child.terminate()
        await child.wait()

sigterm_as_ctrl_c()
uvloop.run(main())
"""


def ended(command: list[str], mark: str) -> int:
    """Its exit status after SIGTERM, which comes when it has a child in whose command `mark` stands."""
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            here = psutil.Process(process.pid)
            await_true(
                lambda: process.poll() is not None or any(mark in words(each) for each in here.children()), 5 * HANG_S
            )
            assert process.returncode is None, "it ended before anybody saw what it had started"
            started = here.children(recursive=True)
            process.send_signal(signal.SIGTERM)
            status = process.wait(HANG_S)
        finally:
            process.kill()  # nothing, once it has ended
    await_true(lambda: not any(map(lives, started)), otherwise=lambda: str(started))
    return status


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("before", ["", "trap '' INT; "], ids=["", "in the background of a shell"])
def test_sigterm_runs_what_ctrl_c_would(before: str) -> None:
    script = ["sh", "-c", f'{before}exec "$0" "$@"', sys.executable, "-c", _STARTS_SOMETHING]
    assert ended(script, "sleep") == -signal.SIGINT


@pytest.mark.slow
@pytest.mark.parametrize("command", [["fidelity"], ["validity", "--parts", "live", "--requests", "400"]])
def test_sigterm_leaves_no_layout_running(command: list[str]) -> None:
    engine = ["--engine", "--engine simulated --profile toy", "--options", ""]
    assert ended([sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:], *engine], "up") != 0
