"""`tandem plan`: bad input, and a layout document that really starts."""

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from loadgen.failure import InterruptedEarlyError
from loadgen.plan.candidate import Candidate, Engine, Part
from loadgen.plan.layout_document import layout_text
from proto.worker import Role
from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit
from tests.tandem.test_up import await_ready, start
from tests.waiting import HANG_S
from transfer.ports import free_ports

MODEL = "h200-sxm/llama-3.1-8b"


def tandem_plan(*words: str, model: str = MODEL, gpus: str = "1", limits: str = "ttft:300 tpot:30") -> Result:
    given = ["plan", "--model", model, "--gpus", gpus, "-w", "fixed isl=500 osl=10", "--goodput", limits, "-q", *words]
    return CliRunner().invoke(app, given)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ({"model": "h200-sxm/nope"}, "no table 'h200-sxm/nope'"),
        ({"model": "h200-sxm/llama-3.1-405b"}, "no layout fits"),
        ({"gpus": "0"}, "at least one GPU"),
        ({"gpus": "999999999999999"}, "4,096 of a kind at most"),
        ({"gpus": "1x h200-sxm@1..2"}, "neither a number nor"),
        ({"limits": "ttft:1 tpot:30"}, "no layout holds the limits at any rate"),
        ({"limits": "speed:1"}, "unknown name 'speed'"),
    ],
)
def test_bad_input_has_one_cause_and_status_2(words: dict[str, str], cause: str, tmp_path: Path) -> None:
    result = tandem_plan("--jobs", "1", "-o", str(tmp_path / "out"), **words)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.USAGE
    assert len(result.exception.problems) == 1
    assert cause in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_gateway_that_does_not_answer_is_named_by_the_option_that_a_plan_has() -> None:
    """Its error said "name another with --endpoint", which `tandem plan` does not take."""
    nobody = f"http://127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    words = ["plan", "--model", MODEL, "--gpus", "1", "--observed", nobody, "--goodput", "ttft:300", "-q"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "name another with --observed" in str(result.exception)


def test_ctrl_c_before_anything_was_measured_has_its_own_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise InterruptedEarlyError("no layout was measured: interrupted")

    monkeypatch.setattr("loadgen.plan.session.run_plan", interrupted)
    result = tandem_plan("-o", str(tmp_path))
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.INTERRUPTED


@pytest.mark.slow
def test_a_plan_leaves_its_files(tmp_path: Path) -> None:
    result = tandem_plan("--jobs", "1", "--no-margins", "--budget", "10", "-o", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "limited by" in result.output or "Cut short" in result.output
    plan = json.loads((tmp_path / "plan.json").read_bytes())
    assert plan["schema"] == "tandem-plan/1"
    assert (tmp_path / "ttft.svg").read_text().startswith("<svg")
    checked = CliRunner().invoke(app, ["config", "check", str(tmp_path / "layout.yaml")])
    assert checked.exit_code == 0, checked.output


@pytest.mark.slow
def test_tandem_up_starts_the_layout_it_writes(tmp_path: Path) -> None:
    planned = Candidate(
        (Part(Role.PREFILL, 1, Engine(MODEL, tokens=4096)), Part(Role.DECODE, 1, Engine(MODEL, tp=2, tokens=2048))), 128
    )
    file = tmp_path / "layout.yaml"
    file.write_text(layout_text(planned))
    up = start(tmp_path, "--config", str(file))
    try:
        await_ready(up)
        body = {"model": "llama-3.1-8b", "prompt": "w " * 400, "max_tokens": 4}
        answer = httpx.post(f"{up.endpoint}/v1/completions", json=body, timeout=HANG_S, trust_env=False)
        assert answer.status_code == 200, answer.text
        assert len(up.groups()) >= 3
    finally:
        up.end()


def test_a_seed_is_no_negative_number() -> None:
    """It ended in a traceback of numpy's."""
    result = tandem_plan("--seed", "-1")
    assert (result.exit_code, "--seed" in result.output) == (2, True)


@pytest.mark.parametrize(("flag", "value"), [("--outputs", "nan"), ("--at-once", "inf"), ("--outputs", "1,,2")])
def test_a_crossover_of_no_numbers_is_refused(flag: str, value: str) -> None:
    """A mean of nan is neither below nor above any limit, and its curve never came to an end."""
    refused = CliRunner().invoke(app, ["plan", "crossover", "--model", MODEL, flag, value])
    assert isinstance(refused.exception, CliError)
    assert (refused.exception.status, f"{flag} {value}: expected numbers" in str(refused.exception)) == (2, True)


def test_the_crossover_is_a_command_of_its_own() -> None:
    refused = CliRunner().invoke(app, ["plan", "crossover", "--model", "h200-sxm/deepseek-r1"])
    assert isinstance(refused.exception, CliError)
    assert (refused.exception.status, "no dense model" in str(refused.exception)) == (Exit.USAGE, True)


@pytest.mark.parametrize(("words", "flag"), [([], "--model"), (["--model", MODEL], "--gpus")])
def test_a_plan_says_what_it_needs(words: list[str], flag: str) -> None:
    result = CliRunner().invoke(app, ["plan", *words])
    assert isinstance(result.exception, CliError)
    assert (result.exception.status, flag in str(result.exception)) == (Exit.USAGE, True)
