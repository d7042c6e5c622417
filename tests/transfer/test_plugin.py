"""The plugin acts only inside an engine that a worker of ours started, and then on every process of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.waiting import await_true
from transfer.nixl import plugin

_ROOT = Path(__file__).parents[2]

_PARENT = """
import multiprocessing, os, time
from transfer.nixl.plugin import OWNER_PID, register

def child():
    register()
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    if {ours}:
        os.environ[OWNER_PID] = str(os.getpid())
    multiprocessing.get_context("spawn").Process(target=child).start()
    time.sleep(600)
"""

_DELAY = """
import sys
from transfer.nixl.plugin import set_poll_delay
set_poll_delay(1000)
set_poll_delay(1000)
config = sys.modules["nixl._bindings"].nixlAgentConfig()
config.pthrDelay = 0
assert config.pthrDelay == 1000, config.pthrDelay
config.pthrDelay = 5000
assert config.pthrDelay == 5000, config.pthrDelay
"""


@pytest.mark.slow
@pytest.mark.parametrize("ours", [True, False])
def test_engine_processes_die_with_their_worker_and_others_are_left_alone(tmp_path: Path, ours: bool) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT.format(ours=ours))
    environ = {name: value for name, value in os.environ.items() if name != plugin.OWNER_PID}
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environ | {"PYTHONPATH": str(_ROOT)}
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    try:
        parent.kill()
        parent.wait()
        time.sleep(0.3)
        if ours:
            await_true(lambda: not _alive(child))
        assert _alive(child) is not ours
    finally:
        if _alive(child):
            child.send_signal(signal.SIGKILL)


def test_the_worker_itself_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.OWNER_PID, str(os.getpid()))
    monkeypatch.setattr(plugin, "die_with_parent", lambda: pytest.fail("not in the worker"))
    plugin.register()


@pytest.mark.engine
def test_nixl_takes_no_delay_shorter_than_ours() -> None:
    done = subprocess.run([sys.executable, "-c", _DELAY], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
