"""Where results go is tried before anything is run."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.failure import LoadgenError
from loadgen.folder import need_writable
from tandem.cli.app import app as tandem

SIM = "sim:--profile toy --colocated 1"
LOAD = ("-w", "fixed isl=20 osl=4", "-n", "5", "-q")


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path: Path) -> None:
    need_writable(tmp_path / "results" / "today")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadgenError, match=r"cannot write to .*file/results: Not a directory"):
        need_writable(tmp_path / "file" / "results")


@pytest.mark.parametrize(
    "words",
    [
        ("run", SIM, "-r", "5"),
        ("simulate", SIM, "-r", "5"),
        ("search", SIM, "--start", "5", "--goodput", "ttft:5000"),
        ("compare", f"a={SIM}", f"b={SIM}", "-r", "5"),
    ],
)
def test_no_command_runs_for_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, [*words, *LOAD, "-o", str(tmp_path / "file")])
    assert isinstance(result.exception, LoadgenError)
    assert "cannot write to" in str(result.exception)


def test_neither_does_a_plan(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = (
        "plan",
        "--model",
        "h200-sxm/qwen3-32b",
        "--gpus",
        "2",
        "-w",
        "azure-code",
        "--goodput",
        "ttft:1000 tpot:50",
    )
    result = CliRunner().invoke(tandem, [*words, "-o", str(tmp_path / "file"), "-q"])
    assert "cannot write to" in str(result.exception)
