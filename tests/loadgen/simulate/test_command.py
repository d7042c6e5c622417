"""`loadgen simulate` and `sim:` arms: the same files as a run, and every report works on them."""

from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it has no types
import orjson
import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app, main

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
LAYOUT = "sim:--profile h200-sxm/llama-3.1-8b --prefill 1 --decode 1"
LOAD = ["-w", "azure-conv", "--rate", "4,8", "-d", "10", "--goodput", "ttft:500 tpot:50", "-q"]


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_a_simulation_has_the_form_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = run("simulate", LAYOUT, *LOAD, "--seeds", "2", "--out", str(out))
    assert "simulated: --profile" in shown
    summary = orjson.loads((out / "summary.json").read_bytes())
    jsonschema.validate(summary, orjson.loads((SCHEMAS / "loadgen-summary-1.json").read_bytes()))
    assert [(r["rate"], r["repetition"]) for r in summary["runs"]] == [(4, 0), (4, 1), (8, 0), (8, 1)]
    first = summary["runs"][0]
    assert first["invalid"] == []
    assert first["stages_ms"]["transfer"]["p50"] > 0
    assert first["telemetry"]["counts"]["handoffs"] > 0
    tokens, completed = first["overall"]["output_tokens"], first["overall"]["completed"]
    assert first["overall"]["latency_ms"]["itl"]["count"] == tokens - completed
    each = jsonschema.Draft202012Validator(orjson.loads((SCHEMAS / "loadgen-request-1.json").read_bytes()))
    for line in (out / "requests.jsonl").read_bytes().splitlines()[::10]:
        each.validate(orjson.loads(line))
    run("report", str(out))


@pytest.mark.slow
def test_simulated_arms_are_compared(tmp_path: Path) -> None:
    other = "dp=sim:--profile h200-sxm/llama-3.1-8b --colocated 2"
    run("compare", f"pd={LAYOUT}", other, *LOAD, "--repeat", "1", "--out", str(tmp_path / "c"))


@pytest.mark.slow
def test_limits_on_gaps_between_tokens_decide_who_is_good(tmp_path: Path) -> None:
    """The engine decodes with up to some ten answers: no step is as short as 5 ms, and none but with a prompt above 20."""
    for limit, least, most in (("itl_p50:2", 0.0, 0.0), ("itl_p50:20", 0.9, 1.0), ("itl_max:20", 0.0, 0.9)):
        out = tmp_path / limit.replace(":", "-")
        run(
            "simulate",
            LAYOUT.replace("--prefill 1 --decode 1", "--colocated 1"),
            *LOAD[:-2],
            limit,
            "-q",
            "--out",
            str(out),
        )
        first = orjson.loads((out / "summary.json").read_bytes())["runs"][0]
        assert least <= first["overall"]["attainment"] <= most, limit


def test_each_rate_and_seed_is_held_against_its_own_requests_alone(tmp_path: Path) -> None:
    """A duration draws other requests at another rate, and so does another seed; alone they have no slowdown."""
    words = ["-w", "azure-conv", "--rate", "0.02,0.05", "-d", "300", "--slo", "splitwise", "--seeds", "2", "-q"]
    run("simulate", LAYOUT, *words, "--out", str(tmp_path / "s"))
    runs = orjson.loads((tmp_path / "s" / "summary.json").read_bytes())["runs"]
    assert len(runs) == 4
    for one in runs:
        assert all(condition["held"] for condition in one["relative"]), one["relative"]


def test_mistakes_are_said_as_they_were_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`:up:` is no picture."""
    monkeypatch.setattr("sys.argv", ["loadgen", "simulate", "up:--prefill 1", *LOAD])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "loadgen: sim:up:--prefill 1" in capsys.readouterr().err
