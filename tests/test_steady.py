"""What continuous integration does with tests that fail: see .ci/steady."""

import importlib.util
import json
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # it runs pytest several times

_ROOT = Path(__file__).parents[1]
_BOTH_PARTS = """
import pathlib, pytest

@pytest.mark.engine
def test_of_the_engine(): ...

def test_of_the_others(): ...
"""
_FIRST_TIME = """
def test_that_fails_the_first_time():
    here = pathlib.Path("been-here")
    been = here.exists()
    here.touch()
    assert been
"""
_ALWAYS = """
def test_that_fails_always():
    assert False
"""


@pytest.fixture
def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, in a directory with nothing but the tests of the test."""
    loader = SourceFileLoader("steady", str(_ROOT / ".ci/steady"))
    spec = importlib.util.spec_from_loader("steady", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "steady", module)
    loader.exec_module(module)
    monkeypatch.setattr(module, "OTHERS", replace(module.OTHERS, flags=()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  engine: one part\n  soak: neither\n")
    return module


def test_both_parts_run_and_what_passes_alone_is_named(steady: Any, capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_both.py").write_text(_BOTH_PARTS + _FIRST_TIME)
    steady.main()
    said = capfd.readouterr().out
    assert "1 failed, 1 passed, 1 deselected" in said
    assert "1 passed, 2 deselected" in said
    assert said.endswith("passed alone:\ntest_both.py::test_that_fails_the_first_time\n")


def test_failures_of_former_runs_count_for_nothing(steady: Any, capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_both.py").write_text(_BOTH_PARTS + _FIRST_TIME)
    former = steady.OTHERS.cache / "v/cache/lastfailed"
    former.parent.mkdir(parents=True)
    former.write_text(json.dumps({f"test_gone.py::test_{number}": True for number in range(4)}))
    steady.main()
    assert capfd.readouterr().out.endswith("passed alone:\ntest_both.py::test_that_fails_the_first_time\n")


def test_what_fails_alone_has_failed(steady: Any, capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_both.py").write_text(_BOTH_PARTS + _ALWAYS)
    with pytest.raises(SystemExit) as end:
        steady.main()
    assert end.value.code == 1
    assert "UNSTEADY" not in capfd.readouterr().out


def test_many_failures_are_not_the_machine(steady: Any) -> None:
    Path("test_many.py").write_text(_BOTH_PARTS + "\n".join(_ALWAYS.replace("always", f"{at}") for at in range(4)))
    with pytest.raises(SystemExit, match="not the machine"):
        steady.main()
