"""The recipe of the image, which is not built here: its instructions, its shell, and what they name."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.cli.failure import Exit

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy/Containerfile"
KNOWN = {
    "ARG",
    "FROM",
    "RUN",
    "WORKDIR",
    "COPY",
    "USER",
    "ENV",
    "EXPOSE",
    "HEALTHCHECK",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
}


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(line for line in RECIPE.read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def shell(text: str) -> str:
    """Of a RUN, without its mounts."""
    return re.sub(r"^(--\S+ )+", "", text)


def installed(engine: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """What the installing step calls, with stand-ins for make and python that say how they were called."""
    (text,) = (shell(run) for run in of("RUN") if "make " in run and "apt-get" not in run)
    for name in ("make", ".venv/bin/python"):
        stand_in = tmp_path / name
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
        stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ENGINE": engine, "PIP_ARGS": "--pre"}
    return subprocess.run(
        ["sh", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def test_every_instruction_is_one() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    assert instructions()[0] == ("ARG", "BASE=python:3.11-slim-bookworm")
    assert of("FROM") == ["${BASE}"]


@pytest.mark.parametrize(
    ("engine", "called"),
    [("cpu", "install-engine ENGINE=cpu"), ("cuda", "install-engine ENGINE=cuda"), ("none", "install ENGINE=none")],
)
def test_each_engine_is_installed_by_a_target_that_make_has(engine: str, called: str, tmp_path: Path) -> None:
    done = installed(engine, tmp_path)
    assert done.stdout.splitlines()[0] == f"make {called} PIP_ARGS=--pre"
    assert f"\n{called.split()[0]}:" in (ROOT / "Makefile").read_text()


def test_another_engine_ends_the_build(tmp_path: Path) -> None:
    done = installed("tpu", tmp_path)
    assert done.returncode != 0
    assert "none, cpu or cuda" in done.stderr
    assert "make" not in done.stdout


def test_it_runs_as_nobody_special_and_drains_on_its_signal() -> None:
    assert of("USER") == ["10001:10001"]
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    assert of("STOPSIGNAL") == ["SIGTERM"]


def test_what_it_starts_is_a_command_with_those_options() -> None:
    (entry,), (default,) = ([json.loads(text) for text in of(name)] for name in ("ENTRYPOINT", "CMD"))
    assert entry == ["tandem"]
    shown = CliRunner().invoke(app, [default[0], "--help"])
    assert shown.exit_code == Exit.OK
    assert all(word in shown.output for word in default if word.startswith("--"))


def test_its_health_is_asked_where_the_gateway_answers() -> None:
    (check,) = of("HEALTHCHECK")
    code = json.loads(check[check.index("[") :])[2]
    compile(code, "healthcheck", "exec")
    assert "127.0.0.1:8000/readyz" in code
    assert of("EXPOSE") == ["8000"]


def test_what_is_no_part_of_the_repository_is_no_part_of_the_image() -> None:
    left_out = set((ROOT / ".dockerignore").read_text().splitlines())
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {line if "*" not in line and line != "__pycache__" else f"**/{line}" for line in ignored} <= left_out
