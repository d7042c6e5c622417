import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.cli.failure import CliError, Exit
from tandem.supervisor.run_state import RunState
from tests.tandem.cli.fake_gateway import DECISION, ORDERS, STATUS, FakeGateway, fake_gateway

COMMANDS = [
    "up",
    "down",
    "doctor",
    "status",
    "explain",
    "drain",
    "role",
    "gateway",
    "worker",
    "profile",
    "recalibrate",
    "manifest",
    "models fetch",
    "config show",
    "config check",
]


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as running:
        yield running


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command may depend on this repository being the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def tandem(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The real thing, with its exit status and its stderr."""
    return subprocess.run([sys.executable, "-m", "tandem", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_an_example(name: str) -> None:
    result = tandem(*name.split(), "--help")
    assert result.exit_code == 0
    assert f"tandem {name}" in result.output.split("Example", 1)[1]


def test_no_command_imports_torch_an_engine_or_the_gateway_at_start() -> None:
    heavy = ("torch", "vllm", "transformers", "numpy", "fastapi", "grpc", "httpx", "pydantic")
    script = f"import sys, tandem.cli.app; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_status_shows_pools_workers_pairs_and_requests(gateway: FakeGateway) -> None:
    result = tandem("status", "--endpoint", gateway.url)
    assert result.exit_code == 0
    for shown in (
        "gw-1: disaggregated",
        "25,600",  # KV tokens of the decode pool
        "25 %",  # used
        "10 %",  # reserved
        "3 faults in a row",
        "prefill-0 → decode-0",
        "shm",
        "3.5 GB/s",
        "1.5 GB",
        "3.0 GB/s",  # in use
        "3 decoding",
        "4 wait for KV",
        "104 ms",
        "120/196",  # promised, of what the pool leaves
        "1/4",  # the pool
        "0.4 % of 12 %",
        "3,210",  # recomputed
        "Policy blue-7: forecast, 7 requests under way",
        "0.95",  # came/estimated
        "87,654",
        "4 default (normal)",
        "3 queue_full",
        "default: the fairness budget of completion is spent",
    ):
        assert shown in result.output


def test_explain_shows_estimate_candidates_and_why(gateway: FakeGateway) -> None:
    result = tandem("explain", "r1", "--endpoint", gateway.url)
    assert result.exit_code == 0
    assert gateway.requests[0][:2] == ("GET", "/tandem/v1/decisions/r1")
    said = " ".join(result.output.split())
    for shown in (
        "r1: class default, policy blue-7 (forecast), 3.2 s ago",
        "expected 120 (half 100, 90 % 250, 99 % 400); its KV counts as the prompt and 180 tokens",
        "placed decode-0 (handoff)",
        "decode-0 fits remote 0.510 102 16",
        "answered with 77 tokens, ended by stop",
    ):
        assert shown in said
    for own in ("chatcmpl-r1", "cmpl-r1"):
        assert tandem("explain", own, "--endpoint", gateway.url).stdout == result.stdout
    as_json = tandem("explain", "r1", "--json", "--endpoint", gateway.url)
    assert json.loads(as_json.output) == DECISION


def test_status_as_json_is_the_gateways_document(gateway: FakeGateway) -> None:
    result = tandem("status", "--json", "--endpoint", gateway.url)
    assert json.loads(result.output) == STATUS


def test_the_api_key_is_sent_from_the_environment(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_API_KEY", "k1")
    monkeypatch.setenv("TANDEM_ENDPOINT", gateway.url)
    assert tandem("status").exit_code == 0
    assert gateway.requests[0][2] == "Bearer k1"


@pytest.mark.parametrize(("flags", "resume"), [((), False), (("--resume",), True)])
def test_drain_and_resume(gateway: FakeGateway, flags: tuple[str, ...], resume: bool) -> None:
    result = tandem("drain", "decode-0", *flags, "--endpoint", gateway.url)
    assert result.exit_code == 0
    method, path, _, body = gateway.requests[0]
    assert (method, path) == ("POST", "/tandem/v1/workers/decode-0/drain")
    assert body == {"resume": resume}
    assert ("3 requests" in result.output) is not resume


def test_a_role_is_changed(gateway: FakeGateway) -> None:
    result = tandem("role", "decode-0", "prefill", "--endpoint", gateway.url)
    assert result.exit_code == 0
    assert result.output == "decode-0 is prefill now; it was decode\n"
    method, path, _, body = gateway.requests[0]
    assert (method, path, body) == ("POST", "/tandem/v1/workers/decode-0/role", {"role": "prefill"})
    assert "decode already" in tandem("role", "decode-0", "decode", "--endpoint", gateway.url).output


@pytest.mark.slow
def test_a_role_that_does_not_exist_is_wrong_usage(gateway: FakeGateway) -> None:
    assert command("role", "decode-0", "chef", "--endpoint", gateway.url).returncode == Exit.USAGE
    assert not gateway.requests


def test_a_refusal_is_the_gateways_own_words(gateway: FakeGateway) -> None:
    gateway.refusal = (404, "no worker decode-9")
    result = tandem("drain", "decode-9", "--endpoint", gateway.url)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.FAILED
    assert "no worker decode-9" in str(result.exception)


def test_who_has_no_key_is_told_how_the_command_takes_one(gateway: FakeGateway) -> None:
    gateway.refusal = (401, "No API key. Send one as `Authorization: Bearer KEY`.")
    assert str(tandem("status", "--endpoint", gateway.url).exception).endswith("--api-key KEY, or TANDEM_API_KEY)")
    gateway.refusal = (403, "Not an operator.")
    assert "--api-key" not in str(tandem("status", "--endpoint", gateway.url).exception)


NASTY = "evil\x1b[2J\r\nfake line\u202e\x07"
SHOWN = r"evil\x1b[2J\r\nfake line\u202e\x07"


def test_what_clients_have_written_does_nothing_to_an_operators_terminal(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's name of a model, in its refusal, cleared the screen of whoever asked for an explanation."""
    error = {"status": 404, "code": "model_not_found", "param": NASTY, "message": NASTY, "numbers": {NASTY: 1}}
    error |= {"phase": "received", "age_s": 1.0}
    monkeypatch.setitem(ORDERS, "r2", {"prompts": [], "error": error})
    worker = STATUS["workers"][0] | {"worker_id": NASTY, "reason": NASTY}
    monkeypatch.setitem(ORDERS, "status", {**STATUS, "workers": [worker], "pairs": []})
    explained = tandem("explain", "r2", "--endpoint", gateway.url)
    status = tandem("status", "--endpoint", gateway.url)
    as_json = tandem("explain", "r2", "--json", "--endpoint", gateway.url)
    gateway.refusal = (404, NASTY)
    refused = tandem("drain", "decode-9", "--endpoint", gateway.url)
    assert explained.output.count(SHOWN) == 3
    assert SHOWN in status.output
    assert json.loads(as_json.output)["error"]["message"] == NASTY
    assert str(refused.exception) == f"the gateway answered 404: {SHOWN}"
    written = explained.output + status.output + as_json.output + str(refused.exception)
    assert all(char.isprintable() or char == "\n" for char in written)


@pytest.mark.slow
def test_an_unreachable_gateway_names_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = command("status", "--endpoint", f"http://127.0.0.1:{port}")
    assert result.returncode == Exit.UNREACHABLE
    assert "tandem up" in result.stderr
    assert "Traceback" not in result.stderr


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


def test_an_answer_that_is_not_a_gateways_is_told_from_a_refusal() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # answers every method with HTML
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = tandem("status", "--endpoint", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "is no gateway" in str(result.exception)


def test_an_endpoint_needs_no_scheme(gateway: FakeGateway) -> None:
    assert tandem("status", "--endpoint", gateway.url.removeprefix("http://")).exit_code == 0


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:99999", "http://host:port", "ftp://somewhere", "http://:80"])
def test_an_endpoint_that_is_no_address_is_one_line(endpoint: str) -> None:
    result = tandem("status", "--endpoint", endpoint)
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.UNREACHABLE
    assert "write http://HOST:PORT" in str(result.exception)


def test_a_key_may_have_any_characters(gateway: FakeGateway) -> None:
    assert tandem("status", "--json", "--endpoint", gateway.url, "--api-key", "clé").exit_code == 0


def test_a_worker_of_any_name_is_asked_for_by_that_name(gateway: FakeGateway) -> None:
    assert tandem("drain", "a?b/c", "--endpoint", gateway.url).exit_code == 0
    assert gateway.requests[-1][1] == "/tandem/v1/workers/a%3Fb%2Fc/drain"


@pytest.mark.parametrize("words", [("up", "--profile", "nope"), ("up", "--profile", "h200-sxm/qwen3-32b?tp=3")])
def test_a_profile_that_is_not_there_is_said_before_anything_starts(words: tuple[str, ...]) -> None:
    result = tandem(*words, "--engine", "simulated", "--port", "0")
    assert isinstance(result.exception, CliError)
    assert result.exception.status is Exit.CONFIG
    assert str(result.exception).startswith("engine.profile: ")


def test_the_status_fits_80_columns_whatever_the_reasons(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = tandem("status", "--endpoint", gateway.url).output
    assert "3 faults in a row" in output
    assert "…" not in output


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--engine", "simulatd"), "engine.backend"),
        (("up", "--set", "gateway.prot=1"), "did you mean port?"),
        (("up", "--decode", "1"), "needs at least one prefill"),
        (("worker", "--role", "bth"), "worker.role"),
        (("config", "check", "absent.yaml"), "cannot read absent.yaml"),
    ],
)
def test_a_wrong_setting_is_named(arguments: tuple[str, ...], said: str) -> None:
    result = command(*arguments)
    assert result.returncode == Exit.CONFIG
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--prefill", "-1"),
        ("upp",),
        ("up", "--set", "novalue"),
        ("up", "--set", "gateway.api_keys.x="),
        ("up", "--colocated", "0"),
        ("gateway", "--worker", "no-port"),
    ],
)
def test_wrong_usage_has_its_own_status(arguments: tuple[str, ...]) -> None:
    assert command(*arguments).returncode == Exit.USAGE


def test_config_show_merges_and_masks(tmp_path: Path) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text("gateway: {api_keys: {acme: hunter2}, port: 9000}")
    result = tandem("config", "show", "-c", str(file), "--set", "gateway.drain_s=5")
    assert "port: 9000" in result.output
    assert "drain_s: 5" in result.output
    assert "hunter2" not in result.output


def test_config_show_all_is_a_valid_document(tmp_path: Path) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text(tandem("config", "show", "--all").output)
    result = tandem("config", "check", str(file))
    assert result.exit_code == 0
    assert "1 prefill (TP 1), 1 decode (TP 1)" in result.output


@pytest.mark.slow
def test_down_without_anything_running_says_where_it_looked() -> None:
    result = command("down", "--port", "1234")
    assert result.returncode == Exit.FAILED
    assert "nothing runs on port 1234" in result.stderr


def test_down_finds_what_the_other_commands_ask_and_names_what_else_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(port: int) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        started_s = psutil.Process(child.pid).create_time()
        state = RunState(child.pid, started_s, f"http://127.0.0.1:{port}", "ready")
        folder = tmp_path / f".run/port-{port}"
        folder.mkdir(parents=True)
        (folder / "up.json").write_text(json.dumps(asdict(state)))
        return child

    with start(23100) as one, start(23200) as other:
        try:
            result = tandem("down")
            assert isinstance(result.exception, CliError)
            assert "nothing runs on port 8000" in str(result.exception)
            assert str(result.exception).endswith("tandem down --port 23100, tandem down --port 23200")
            monkeypatch.setenv("TANDEM_ENDPOINT", "http://10.0.0.1:23100/")
            assert isinstance(tandem("down").exception, CliError)  # another machine's
            assert (one.poll(), other.poll()) == (None, None)
            monkeypatch.setenv("TANDEM_ENDPOINT", "http://localhost:23100/")
            assert tandem("down").output == "stopped http://127.0.0.1:23100\n"
            assert (one.wait(), other.poll()) == (-signal.SIGTERM, None)
            assert tandem("down", "--port", "23200").exit_code == Exit.OK
            assert other.wait() == -signal.SIGTERM
        finally:
            one.kill()
            other.kill()


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


def test_models_list_names_the_demo_model() -> None:
    result = tandem("models", "list")
    assert "SmolLM2-135M-Instruct" in result.output
    assert "not fetched" in result.output
