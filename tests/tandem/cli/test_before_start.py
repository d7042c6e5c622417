"""What would keep a start from succeeding is one line, before anything has started."""

import json
import os
import socket
from pathlib import Path

import pytest

from tandem.cli.failure import CliError, Exit
from tests.tandem.cli.running import command, tandem

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.slow
def test_a_port_in_use_names_its_owner_and_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = command("up", "--engine", "simulated", "--port", str(port))
    assert result.returncode == Exit.UNMET
    assert f"port {port}" in result.stderr
    assert f"pid {os.getpid()}" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("worker", "--role", "both", "--engine", "simulated", "--port"), ("gateway", "--grpc-port")]
)
def test_every_port_in_use_is_found_before_anything_loads(arguments: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = command(*arguments, str(port))
    assert result.returncode == Exit.UNMET
    assert f"port {port} of 127.0.0.1: it is in use by" in result.stderr
    assert arguments[-1] in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [("up", "--profile", "nope"), ("up", "--profile", "h200-sxm/qwen3-32b?tp=3")])
def test_a_profile_that_is_not_there_is_said_before_anything_starts(words: tuple[str, ...]) -> None:
    result = tandem(*words, "--engine", "simulated", "--port", "0")
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.CONFIG
    assert str(result.exception).startswith("engine.profile: ")


@pytest.mark.slow
def test_a_missing_model_names_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "modules"
    (fake / "vllm").mkdir(parents=True)  # found is enough: nothing is imported before the model is
    monkeypatch.setenv("PYTHONPATH", str(fake))
    result = command("up", "--model", "./absent", "--port", "0")
    assert result.returncode == Exit.UNMET
    assert "'./absent' not found" in result.stderr
    assert "tandem models list" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("start", [("up", "--engine", "simulated"), ("gateway",)])
def test_a_tokenizer_that_cannot_be_used_fails_the_start_at_once(tmp_path: Path, start: tuple[str, ...]) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for directory, cause in (("absent", "absent is not a directory"), ("broken", "has no tokenizer.json")):
        result = command(*start, "--port", "0", "--set", f"gateway.tokenizer={directory}")
        assert result.returncode == Exit.UNMET
        assert cause in result.stderr
        assert "Traceback" not in result.stderr
    (broken / "tokenizer.json").write_text("{oops")
    result = command(*start, "--port", "0", "--set", "gateway.tokenizer=broken")
    assert result.returncode == Exit.UNMET
    assert "cannot load broken/tokenizer.json" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--host", "0.0.0.0")])
def test_up_warns_loudly_of_what_is_open_to_the_network(flags: tuple[str, ...]) -> None:
    result = command("up", "--engine", "simulated", "--port", "0", "--set", "gateway.tokenizer=absent", *flags)
    assert result.returncode == Exit.UNMET  # it need not start for this
    assert ("warning: OPEN TO THE NETWORK: HTTP on 0.0.0.0" in result.stderr) is bool(flags)


@pytest.mark.slow
def test_up_looks_for_the_tokenizer_of_its_model_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "modules" / "vllm").mkdir(parents=True)  # found is enough: it must not come to an import
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    result = command("up", "--model", "./model", "--port", "0")
    assert result.returncode == Exit.UNMET
    assert "model has no tokenizer.json" in result.stderr


@pytest.mark.parametrize("name", ["up", "worker --role both"])
def test_a_planned_layout_without_a_model_ends_before_anything_is_fetched_or_started(name: str, tmp_path: Path) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text("layout: {colocated: {workers: 2, engine: {profile: 'h200-sxm/qwen3-32b?tokens=2048'}}}")
    result = tandem(*name.split(), "--config", str(file))
    assert isinstance(result.exception, CliError)
    assert result.exception.status == Exit.CONFIG
    assert str(result.exception) == (
        "the layout is for h200-sxm/qwen3-32b (engine.profile) and names no model; add --model DIR, or --engine "
        "simulated to imitate it"
    )
    checked = tandem("config", "check", str(file))
    assert checked.exit_code == Exit.OK
    assert "names no model" in checked.stderr


def test_doctor_names_a_port_that_is_taken_and_what_else_is_wrong_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sets = ("--set", f"gateway.port={port}", "--set", f"gateway.tokenizer={tmp_path}/none")
        result = tandem("doctor", "--engine", "simulated", "--json", *sets)
        shown = tandem("doctor", "--engine", "simulated", *sets)
    findings = {one["what"]: one for one in json.loads(result.stdout)}
    assert result.exit_code == shown.exit_code == Exit.UNMET
    assert findings["engine"]["verdict"] == "ok"
    assert findings["port"]["found"].startswith(f"cannot listen on {port}: it is in use")
    assert (findings["tokenizer"]["verdict"], findings["tokenizer"]["fix"] != "") == ("fails", True)
    assert findings["layout"]["verdict"] == "ok"
    assert "set gateway.port (0 picks a free one)" in shown.stdout
    assert list(tmp_path.iterdir()) == []


def test_doctor_finds_nothing_against_a_simulated_fleet() -> None:
    result = tandem("doctor", "--engine", "simulated", "--set", "gateway.port=0")
    assert result.exit_code == Exit.OK
    assert "this machine has room for prefill-0, decode-0" in result.stdout


def test_doctor_says_every_fault_once_and_none_hides_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the engine it said so twice, and nothing of a model that is nowhere and of a folder that cannot be written."""
    monkeypatch.setattr("tandem.doctor.facts._packages", dict)
    (tmp_path / "file").touch()
    sets = (
        "gateway.port=0",
        f"engine.model={tmp_path}/none",
        f"supervisor.run_dir={tmp_path}/file/run",
        "layout.decode.tp=900",
        "layout.tp_across_nodes=true",
    )
    result = tandem("doctor", "--json", *[word for one in sets for word in ("--set", one)])
    failing = [one for one in json.loads(result.stdout) if one["verdict"] == "fails" and one["what"] != "NIXL"]
    assert [one["what"] for one in failing] == ["engine", "run_dir", "model", "layout"]
    assert "vllm" not in " ".join(one["found"] for one in failing[1:])
    assert "supervisor.run_dir" in failing[1]["fix"]
    assert f"{tmp_path}/none" in failing[2]["found"]


def test_a_host_that_is_not_this_machines_is_one_finding_and_one_line() -> None:
    """Documentation addresses (RFC 5737) are nobody's."""
    sets = ("--engine", "simulated", "--set", "gateway.host=192.0.2.1")
    result = tandem("doctor", "--json", *sets)
    failing = [one for one in json.loads(result.stdout) if one["verdict"] == "fails"]
    assert [one["what"] for one in failing] == ["host"]
    assert failing[0]["found"].startswith("cannot listen on 192.0.2.1: ")
    up = tandem("up", *sets)
    assert isinstance(up.exception, CliError)
    assert (up.exception.status, str(up.exception)[:28]) == (Exit.UNMET, "cannot listen on 192.0.2.1: ")


def test_certificates_that_are_not_there_are_said_before_anything_starts(tmp_path: Path) -> None:
    """A gateway died of them with a traceback, five seconds after the start."""
    sets = [f"gateway.tls.{name}_file={tmp_path}/{name}.pem" for name in ("cert", "key", "ca")]
    words = ("--engine", "simulated", "--set", "gateway.port=0", *[word for one in sets for word in ("--set", one)])
    result = tandem("doctor", "--json", *words)
    failing = [one for one in json.loads(result.stdout) if one["verdict"] == "fails"]
    assert [one["what"] for one in failing] == ["gateway.tls"]
    for command_words in (("up", *words), ("gateway", *words[2:])):
        ended = tandem(*command_words)
        assert isinstance(ended.exception, CliError)
        assert ended.exception.status is Exit.UNMET
        assert str(ended.exception) == f"gateway.tls: cannot read {tmp_path}/cert.pem: No such file or directory"


JUNK = "{oops"


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [
        (("engine.faults=absent",), Exit.CONFIG, "engine.faults: absent: No such file or directory"),
        (("engine.faults=.",), Exit.CONFIG, "engine.faults: .: Is a directory"),
        (("engine.faults=junk",), Exit.CONFIG, "engine.faults: junk: "),
        (("layout.decode.engine={faults: absent}",), Exit.CONFIG, "engine.faults: absent: "),
        (("engine.profile=absent",), Exit.CONFIG, "engine.profile: no profile 'absent'"),
        (("engine.model=model",), Exit.CONFIG, "engine.model: the files in model are no model's: "),
        (
            tuple(f"worker.tls.{name}_file=junk" for name in ("cert", "key", "ca")),
            Exit.UNMET,
            "worker.tls: junk and junk are no certificate and its key (PEM, no pass phrase)",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("name", ["up", "worker --role decode"])
def test_a_file_that_a_setting_names_and_cannot_be_used_is_one_line(
    name: str, settings: tuple[str, ...], status: Exit, said: str, tmp_path: Path
) -> None:
    """A worker died of it with a traceback."""
    (tmp_path / "junk").write_text(JUNK)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_text(JUNK)
    words = ["--engine", "simulated", "--port", "0", *[word for one in settings for word in ("--set", one)]]
    result = tandem(*name.split(), *words)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is status
    assert str(result.exception).startswith(said)
    assert "\n" not in str(result.exception)
    findings = json.loads(tandem("doctor", "--json", *words[:2], "--set", "gateway.port=0", *words[4:]).stdout)
    assert [one["found"].startswith(said.partition(";")[0]) for one in findings if one["verdict"] == "fails"] == [True]


@pytest.mark.parametrize("more", [(), ("--background",)])
def test_a_folder_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    sets = ("--set", f"supervisor.run_dir={tmp_path}/file/run", "--port", "24317")
    result = tandem("up", "--engine", "simulated", *sets, *more)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNMET
    assert str(result.exception).startswith(f"cannot write to {tmp_path}/file/run (supervisor.run_dir): ")
