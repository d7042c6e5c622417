"""`tandem up` killed with -9 cannot clean up after itself; the sentinel does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tandem.supervisor.cluster import OBEDIENT, STUBBORN, alive_in_groups
from tests.waiting import await_true

_SUPERVISOR = """
import asyncio, json, sys
from pathlib import Path
from tests.tandem.supervisor.cluster import QUICK, FakeProbe, Recorder, plan_of
from tandem.supervisor.supervisor import Stop, Supervisor

recorder = Recorder()

def on_ready(snapshot, took_s):
    print(json.dumps(recorder.started_pids), flush=True)
    return []

plan = plan_of(Path(sys.argv[1]), decode=sys.argv[2])
asyncio.run(Supervisor(plan, QUICK, FakeProbe(), recorder, on_ready).run(Stop()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("decode", [OBEDIENT, STUBBORN], ids=["obedient", "ignores-sigterm"])
def test_kill_9_of_the_supervisor_leaves_nothing_running(tmp_path: Path, decode: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, str(tmp_path), decode], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    groups = [pid for each in pids.values() for pid in each]
    await_true(lambda: len(alive_in_groups(groups)) >= 5)  # children and grandchildren
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    await_true(lambda: not alive_in_groups(groups), otherwise=lambda: f"left running: {alive_in_groups(groups)}")


def test_a_child_that_outlives_its_parent_at_birth_ends_at_once() -> None:
    """The request for a death signal comes too late when the parent is dead already."""
    script = "from tandem.process import die_with_parent; die_with_parent(1 << 30); print('lives')"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "lives" not in result.stdout


def test_a_child_gets_sigterm_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Also without the sentinel: the kernel tells the child."""
    told = tmp_path / "told"
    child = (
        "import os, signal, sys, time; from tandem.process import die_with_parent; die_with_parent(os.getppid())\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(told)!r}, 'w').close(), sys.exit(0)))\n"
        "print('up', flush=True); time.sleep(900)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.wait()
    await_true(told.exists)
