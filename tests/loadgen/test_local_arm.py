"""A local layout is started, loaded, asked for its own figures and left without a trace."""

import sys
from pathlib import Path

import psutil
import pytest

from loadgen.arms.local import LocalArm
from loadgen.arrivals.process import Arrivals, Kind
from loadgen.experiment import Experiment
from loadgen.failure import LoadgenError
from loadgen.trial import run_trial
from loadgen.workload.family import fixed
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow


async def test_simulated_layout_is_started_measured_and_stopped() -> None:
    experiment = Experiment(fixed(200, 20), Arrivals(Kind.CONSTANT), count=20, max_send_lag_ms=5000)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    arm = LocalArm("pd", 2, "--engine simulated --prefill 1 --decode 1", ready_timeout_s=2 * HANG_S)
    async with arm:
        trial = await run_trial(experiment, arm, 10.0)
    m = trial.measures
    assert m.overall.completed == m.overall.offered == 20, m.overall.reasons
    assert not m.warnings or all("short run" in w for w in m.warnings)
    assert all(sum(s for _, s in r.stages_s) > 0 for r in trial.observation.results)
    assert trial.observation.telemetry.peak("kv") is not None
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    assert after <= before


async def test_a_layout_that_does_not_start_says_why() -> None:
    arm = LocalArm("bad", 1, "--engine nonsense", ready_timeout_s=2 * HANG_S)
    with pytest.raises(LoadgenError, match="arm bad: `tandem up --engine nonsense` ended with code"):
        async with arm:
            pass


async def test_a_wrong_option_is_told_without_its_frame() -> None:
    arm = LocalArm("bad", 1, "--nope 3", ready_timeout_s=2 * HANG_S)
    with pytest.raises(LoadgenError, match=r"ended with code 2: No such option: --nope"):
        async with arm:
            pass


async def test_a_layout_that_ignores_sigterm_is_ended_all_the_same(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(6000)\n")
    arm = LocalArm("stubborn", 1, "", ready_timeout_s=0.5, patience_s=0.5, command=(sys.executable, str(script)))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(LoadgenError, match="was not ready in"):
        async with arm:
            pass
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
