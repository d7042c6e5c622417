"""`tandem profile`: measures an engine and writes a table that the simulated engine loads."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.simulated.cost import load_profile
from engine.simulated.cost.table import read_table
from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit

QUICK = ("--engine", "simulated", "--profile", "toy", "--repeats", "1", "--batches", "1,4", "--contexts", "32,256")


def tandem_profile(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", *arguments])


def test_the_table_it_writes_is_a_profile(tmp_path: Path) -> None:
    out = tmp_path / "toy.json.gz"
    result = tandem_profile(*QUICK, "--lengths", "8,64,256", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "toy on simulated" in result.output
    assert f"--profile file:{out}" in result.output
    facts = read_table(out).facts
    assert facts is not None
    assert facts.max_num_batched_tokens == 2048  # the profile's own, not a default of the plan
    # That its figures are those of the engine: tests/engine/simulated/cost, in a time of its own.
    assert load_profile(f"file:{out}").cost.step_s(4, 4 * 256) > 0


def test_the_budget_of_a_step_is_the_engines(tmp_path: Path) -> None:
    out = tmp_path / "toy.json"
    sizes = ("--lengths", "8,32,64,256", "--set", "engine.max_num_batched_tokens=128")
    assert tandem_profile(*QUICK, *sizes, "--out", str(out)).exit_code == 0
    table = read_table(out)
    assert table.facts is not None
    assert table.facts.max_num_batched_tokens == 128
    assert table.layouts[0].step.tokens == (8, 32, 64)  # a longer prompt would have been several steps


def test_progress_is_told_on_stderr(tmp_path: Path) -> None:
    result = tandem_profile(*QUICK, "--lengths", "8,64", "--out", str(tmp_path / "toy.json"))
    lines = result.stderr.splitlines()
    assert lines[0].startswith("measuring ")
    total = int(lines[0].split()[1])
    assert lines[-1] == f"{total} of {total}"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--lengths", "8,x"), Exit.USAGE, "--lengths 8,x"),
        (("--batches", "0"), Exit.USAGE, "--batches 0"),
        (("--out", "absent/toy.json"), Exit.USAGE, "absent/toy.json"),
        (("--contexts", "32"), Exit.USAGE, "two contexts"),
        (("--profile", "nope"), Exit.FAILED, "no profile 'nope'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, arguments: tuple[str, ...], status: Exit, said: str) -> None:
    result = tandem_profile(*QUICK, "--out", str(tmp_path / "toy.json"), *arguments)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is status
    assert said in str(result.exception)
