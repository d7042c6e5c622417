"""The simulated scheduler against vLLM's own, step by step."""

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from tests.engine.simulated.drive_simulated import run
from tests.engine.simulated.scenarios import Scenario, StepTrace, random_scenario, scripted

_ROOT = Path(__file__).parents[3]
_SCRIPTED = scripted()
_RANDOM = [random_scenario(seed) for seed in range(300)]


@lru_cache(maxsize=1)
def _real_traces() -> dict[str, list[StepTrace]]:
    """All of them in one process: starting it is what takes time."""
    scenarios = [*_SCRIPTED, *_RANDOM]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.simulated.drive_vllm"],
        input=json.dumps(scenarios),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    traces = json.loads(done.stdout.splitlines()[-1])
    return {scenario["name"]: trace for scenario, trace in zip(scenarios, traces, strict=True)}


def _compare(scenario: Scenario) -> None:
    real, simulated = _real_traces()[scenario["name"]], run(scenario)
    for number, (expected, got) in enumerate(zip(real, simulated, strict=False)):
        assert got == expected, f"{scenario['name']}, step {number}"
    assert len(simulated) == len(real)


@pytest.mark.engine
@pytest.mark.timeout(400)
@pytest.mark.parametrize("scenario", _SCRIPTED, ids=lambda scenario: scenario["name"])
def test_same_admissions_preemptions_and_free_blocks_in_every_step(scenario: Scenario) -> None:
    _compare(scenario)


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_same_steps_on_random_workloads() -> None:
    for scenario in _RANDOM:
        _compare(scenario)


def test_the_scripts_exercise_preemption_loading_and_queueing() -> None:
    traces = [run(scenario) for scenario in _SCRIPTED]
    assert sum(1 for trace in traces if any(step["preempted"] for step in trace)) >= 6
    assert sum(1 for trace in traces if any(step["waiting"] for step in trace)) >= 10
    assert all(trace[-1]["free"] <= scenario["blocks"] for trace, scenario in zip(traces, _SCRIPTED, strict=True))
