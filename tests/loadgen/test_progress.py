"""A run whose stderr is a file or a pipe says where it is, in lines."""

from pathlib import Path

from typer.testing import CliRunner

from loadgen.cli.app import app

RUN = ("run", "sim:--profile toy --colocated 1", "-w", "fixed isl=20 osl=4", "-n", "5", "-r", "5,8")


def test_each_run_is_a_line_where_there_is_no_terminal(tmp_path: Path) -> None:
    loud = CliRunner().invoke(app, [*RUN, "-o", str(tmp_path)])
    assert loud.stderr.splitlines() == ["running target 5/s", "running target 8/s"]
    quiet = CliRunner().invoke(app, [*RUN, "-o", str(tmp_path), "-q"])
    assert (quiet.exit_code, quiet.stderr) == (0, "")
