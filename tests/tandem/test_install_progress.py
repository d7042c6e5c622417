"""make install is not silent for minutes: it says how far pip is, and a failure of pip's is still one of make's."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOLD = runpy.run_path(str(ROOT / "requirements/progress.py"))["told"]


def test_a_long_install_says_how_far_it_is() -> None:
    times = iter(range(0, 1000, 4))
    said = [f"Collecting p{number}==1 (from -r base.txt)\n  Downloading p{number}.whl\n" for number in range(1, 8)]
    lines = [*"".join(said).splitlines(), "Installing collected packages: p1, p2", "Successfully installed p1 p2"]
    told = list(TOLD(lines, lambda: float(next(times))))
    assert told == ["  package 3: p3==1", "  package 6: p6==1", "  7 fetched; unpacking them"]


def test_nothing_to_install_is_nothing_to_tell() -> None:
    assert list(TOLD(["Requirement already satisfied: p1==1 in .venv"], lambda: 0.0)) == []


def test_all_that_is_fetched_is_told_of() -> None:
    fetched = [line for line in (ROOT / "Makefile").read_text().splitlines() if "$(PIP)" in line and " -r " in line]
    assert len(fetched) == 4
    assert all("| $(SAID)" in line for line in fetched)


@pytest.mark.slow
@pytest.mark.parametrize(("pip", "status"), [("true", 0), ("false", 2)])
def test_where_pip_fails_so_does_make(tmp_path: Path, pip: str, status: int) -> None:
    """Between make and pip there is a pipe."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "stamps").mkdir()
    (tmp_path / "stamps/venv").touch()
    made = subprocess.run(
        ["make", "install", f"VENV={tmp_path}", f"PIP={pip}"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert made.returncode == status, made.stderr
    assert (tmp_path / "stamps/base").exists() == (status == 0)
