"""Help, usage, configuration, `down`, `models`: what commands say by themselves."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import dropwhile, pairwise, takewhile
from pathlib import Path
from typing import Protocol, cast

import psutil
import pytest
import typer
from typer.testing import CliRunner

from loadgen.cli.app import app as loadgen_app
from loadgen.cli.app import gathered
from tandem.cli.app import app as tandem_app
from tandem.cli.failure import CliError, Exit
from tandem.supervisor.run_state import RunState
from tests.tandem.cli.running import command, tandem

pytestmark = pytest.mark.usefixtures("elsewhere")


class Command(Protocol):
    """Typer has a Click of its own, or uses the one that is installed, by its version."""

    help: str | None

    def make_context(self, info_name: str, args: list[str]) -> object: ...


def every_command(name: str, command: Command) -> Iterator[tuple[str, Command]]:
    """Groups, too."""
    yield name, command
    for each, below in getattr(command, "commands", {}).items():
        yield from every_command(f"{name} {each}", below)


APPS = {"tandem": tandem_app, "loadgen": loadgen_app}
COMMANDS = {
    name: command
    for root, app in APPS.items()
    for name, command in every_command(root, cast(Command, typer.main.get_command(app)))
}


def examples(help_text: str) -> list[list[str]]:
    """The words of each, without variables before it and without where its output goes."""
    shown = help_text.partition("Example")[2].replace(" \\\n", " ").replace(" |\n", " | ")
    found = []
    for line in re.findall(r"(?:^s?:)?\s*(\S.*)", shown):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), lexer))
        found.append(list(takewhile(lambda word: word not in ("|", ">"), words)))
    return [words for words in found if words]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_examples_that_can_be_pasted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups had none, and their help is where people look first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout.yaml").touch()  # an argument that must exist
    pasted = examples(COMMANDS[name].help or "")
    assert any(" ".join(words).startswith(name) for words in pasted)
    shown = CliRunner().invoke(APPS[name.split()[0]], [*name.split()[1:], "--help"])
    assert (shown.exit_code, "Example" in shown.output) == (0, True)
    for words in pasted:
        root, *rest = words
        path = root
        while rest and f"{path} {rest[0]}" in COMMANDS:
            path = f"{path} {rest.pop(0)}"
        COMMANDS[path].make_context(path, gathered(rest) if root == "loadgen" else rest)


@pytest.mark.parametrize("root", APPS)
def test_what_help_has_to_paste_is_whole_and_fits_80_columns(root: str) -> None:
    """Long examples were broken in the middle, and those of several lines were several commands to a shell."""
    continued = 0
    for name, each in COMMANDS.items():
        if name.split()[0] != root:
            continue
        _, _, rest = (each.help or "").partition("\n\n")  # the first paragraph flows, the others are shown as they are
        lines = [re.sub(r"\[/?bold\]", "", line) for line in rest.splitlines()]
        assert not [line for line in lines if len(line) > 78], name
        for before, line in pairwise(lines):
            if line.startswith("    "):
                assert before.endswith((" \\", " |")), f"{name}: {before}"
                continued += 1
    assert continued


def test_no_command_imports_torch_an_engine_or_the_gateway_at_start() -> None:
    heavy = ("torch", "vllm", "transformers", "numpy", "fastapi", "grpc", "httpx", "pydantic")
    script = f"import sys, tandem.cli.app; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


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


def test_models_list_names_the_demo_model() -> None:
    result = tandem("models", "list")
    assert "SmolLM2-135M-Instruct" in result.output
    assert "not fetched" in result.output
