"""What deploy/ shows must be true of the command as it is."""

import configparser
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proto.worker import Role
from tandem.cli.app import app
from tandem.cli.failure import Exit
from tandem.config import TandemConfig, load

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "deploy/layout.yaml"


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read(ROOT / "deploy/tandem.service")
    return parser["Service"]


def stop_time_s(config: TandemConfig) -> float:
    return config.gateway.drain_s + config.worker.drain_s + 2 * config.supervisor.stop_timeout_s


def test_the_example_layout_is_valid() -> None:
    config = load(LAYOUT)
    assert config.engine_of(Role.DECODE).max_num_seqs == 256
    result = CliRunner().invoke(app, ["config", "check", str(LAYOUT)])
    assert result.exit_code == Exit.OK
    assert "1 prefill (TP 1), 1 decode (TP 2)" in result.output


def test_the_units_commands_exist() -> None:
    for key in ("ExecStartPre", "ExecStart"):
        _, name, *arguments = shlex.split(unit()[key])
        words = [name, *(word for word in arguments if not word.startswith(("/", "--")))]
        shown = CliRunner().invoke(app, [*words, "--help"])
        assert shown.exit_code == Exit.OK
        assert all(word in shown.output for word in arguments if word.startswith("--"))


def test_the_unit_waits_at_least_as_long_as_the_example_may_take_to_stop() -> None:
    assert float(unit()["TimeoutStopSec"]) > stop_time_s(load(LAYOUT))


def test_the_unit_does_not_retry_what_cannot_succeed() -> None:
    assert unit()["RestartPreventExitStatus"].split() == [str(int(Exit.CONFIG)), str(int(Exit.UNMET))]


def test_without_ray_its_launcher_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match=r"^error: no module ray; .* pip install ray$"):
        runpy.run_path(str(ROOT / "deploy/ray/launch.py"))
