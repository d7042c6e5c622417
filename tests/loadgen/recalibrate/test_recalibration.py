"""A table that is wrong by a known factor must come back right, and nothing that is on disk may change."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.simulated.cost import load_profile
from engine.simulated.cost.catalog import table_of
from engine.simulated.cost.table import read_table, write_table
from loadgen.recalibrate.factors import Factors, scaled
from loadgen.recalibrate.recalibration import valid_for
from loadgen.recalibrate.show import figure
from loadgen.recalibrate.versions import next_version, place_of, write_version
from tandem.cli.app import app
from tandem.cli.failure import Exit

MODEL = "h200-sxm/llama-3.1-8b"
TRAFFIC = ["-w", "fixed isl=3000 osl=60", "--rate", "3", "-d", "12", "--goodput", "ttft:60 tpot:50"]
LAYOUTS = ["--colocated 1", "--prefill 1 --decode 1"]


@pytest.fixture
def truth(tmp_path: Path) -> str:
    """A fleet that is slower than the table says, and not alike in everything."""
    path = tmp_path / "truth.json"
    write_table(scaled(table_of(MODEL), Factors(prefill=1.4, decode=1.8, link=1.0)), path)
    return f"sim:--engine simulated --profile file:{path}"


def each(layouts: list[str]) -> list[str]:
    return [word for layout in layouts for word in ("--layout", layout)]


def run(truth: str, folder: Path, *options: str, layouts: list[str] = LAYOUTS) -> tuple[int, str]:
    places = ["--out", str(folder / "record"), "--tables", str(folder / "tables")]
    words = ["recalibrate", "--table", MODEL, "--target", truth, *TRAFFIC, *places, *options, *each(layouts)]
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output + str(result.exception or "")


@pytest.mark.slow
def test_a_table_that_is_wrong_comes_back_right(truth: str, tmp_path: Path) -> None:
    code, output = run(truth, tmp_path)
    assert code == Exit.OK, output
    data = json.loads((tmp_path / "record/recalibration.json").read_bytes())
    assert data["factors"]["prefill"] == pytest.approx(1.4, rel=0.05)
    assert data["factors"]["decode"] == pytest.approx(1.8, rel=0.05)
    assert data["median_error_before"] > 0.2
    assert data["median_error"] < 0.03
    for layout in data["layouts"]:
        assert {"ttft", "tpot", "e2el", "queue", "prefill", "decode"} <= layout["observed"]["latency_ms"].keys()
        assert layout["observed"]["memory"]["kv_total_blocks"] > 0
        assert layout["observed"]["bottleneck"] == "prefill"  # no prompt of that length is done in 60 ms
        assert layout["predicted"]["bottleneck"] == "prefill"
    written = Path(data["written"])
    assert written == tmp_path / "tables/llama-3.1-8b.v2.json.gz"
    made = read_table(written)
    assert made.source["version"] == "2"
    assert made.source["recalibrated_from"] == MODEL
    profile = load_profile(f"file:{written}?tp=1")
    assert profile.cost.step_s(32, 32 * 1000) == pytest.approx(
        1.8 * load_profile(f"{MODEL}?tp=1").cost.step_s(32, 32 * 1000), rel=0.05
    )


def test_a_dry_run_leaves_no_table(truth: str, tmp_path: Path) -> None:
    code, output = run(truth, tmp_path, "--dry-run", "--json", layouts=LAYOUTS[:1])
    assert code == Exit.OK, output
    assert json.loads(output)["written"] == ""
    assert not (tmp_path / "tables").exists()


def test_a_fleet_of_another_model_corrects_no_table(truth: str, tmp_path: Path) -> None:
    target = truth.replace(truth.rpartition(" ")[2], "h200-sxm/qwen3-8b")
    code, output = run(target, tmp_path, layouts=LAYOUTS[:1])
    assert code == Exit.FAILED
    assert "the table is of llama-3.1-8b, the target serves qwen3-8b; " in output
    assert "accept=model" in output
    assert not (tmp_path / "tables").exists()
    assert (tmp_path / "record/recalibration.json").exists()


def test_a_new_version_says_what_it_holds_for() -> None:
    old = replace(table_of(MODEL), valid_for=None)
    assert valid_for(old) == valid_for(table_of(MODEL)) == table_of(MODEL).valid_for


def test_a_version_never_takes_the_place_of_another(tmp_path: Path) -> None:
    table = table_of(MODEL)
    folder, name = place_of("file:" + str(tmp_path / "cpu.json"), Path("elsewhere"))
    assert next_version(folder, name) == (2, tmp_path / "cpu.v2.json")
    write_version(table, tmp_path / "cpu.v2.json")
    with pytest.raises(FileExistsError):
        write_version(table, tmp_path / "cpu.v2.json")
    assert next_version(folder, "cpu.v2.json") == (3, tmp_path / "cpu.v3.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu.v2.json"]  # no drafts either


@pytest.mark.parametrize(
    "words",
    [
        ["--table", "h200-sxm/none", "--target", "sim:--profile toy"],
        ["--table", MODEL, "--target", "http://127.0.0.1:1"],  # one fleet cannot be two layouts
        ["--table", MODEL, "--target", "sim:--profile nothing"],
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(words: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["recalibrate", *words, *TRAFFIC, "--out", str(tmp_path / "o"), *each(LAYOUTS)])
    assert getattr(result.exception, "status", None) == Exit.USAGE, result.output
    assert not (tmp_path / "o").exists()


def test_a_target_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    words = ["--table", MODEL, "--target", "http://127.0.0.1:9", *TRAFFIC, "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(app, ["recalibrate", *words, *each(LAYOUTS[:1])])
    assert getattr(result.exception, "status", None) == Exit.FAILED, result.output


@pytest.mark.parametrize(
    ("value", "shown"),
    [(110_340.0, "110,340"), (0.0, "0"), (0.0053871, "0.005387"), (12.0, "12"), (None, "–"), (68868.0, "68,868")],
)
def test_counts_are_shown_whole(value: float | None, shown: str) -> None:
    """KV blocks of a table were shown as 1.1034e+05."""
    assert figure(value) == shown
