"""tandem policy against real gateways over scripted answers: exit statuses, replicas, files that are wrong."""

import asyncio
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from tandem.cli.app import run
from tandem.cli.failure import Exit
from tests.gateway.http.scripted import Site, says, site

BLUE = "version: blue\nstretch: 2\n"
GREEN = "version: green\nrule: declared\nothers: {concurrent: 9}\n"


@dataclass(frozen=True)
class Said:
    returncode: int
    stdout: str
    stderr: str


def tandem(*arguments: str) -> Said:
    """The command in this process: starting one for each would take most of the time."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["tandem", "policy", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            run()
        except SystemExit as left:
            status = int(left.code or 0)
    return Said(status, out.getvalue(), err.getvalue())


@contextmanager
def gateway() -> Iterator[Site]:
    """In a thread of its own, on a socket."""
    ready = threading.Event()
    found: list[tuple[Site, Callable[[], object]]] = []

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with site(says("a"), on_socket=True, settings={"policy": {"version": "base"}}) as at:
            found.append((at, lambda: loop.call_soon_threadsafe(stop.set)))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0][0]
    finally:
        found[0][1]()
        thread.join()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"blue": BLUE, "green": GREEN, "wrong": "strech: 2\nclasses: {chat: {weight: -1}}\n", "empty": ""}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


def test_check_names_every_problem(files: dict[str, str], tmp_path: Path) -> None:
    good, wrong, empty = (tandem("check", files[name]) for name in ("blue", "wrong", "empty"))
    assert (good.returncode, "policy blue" in good.stdout) == (Exit.OK, True)
    assert (wrong.returncode, empty.returncode) == (Exit.CONFIG, Exit.CONFIG)
    assert [line.split(":")[1].strip() for line in wrong.stderr.splitlines()] == ["classes.chat.weight", "strech"]
    assert len(empty.stderr.splitlines()) == 1
    (tmp_path / "layout.yaml").write_text("layout: {}\ngateway: {port: 1}\n")
    (tmp_path / "torn.yaml").write_text("{")
    for name in ("layout.yaml", "torn.yaml", "absent.yaml"):
        result = tandem("check", str(tmp_path / name))
        assert (result.returncode, len(result.stderr.splitlines())) == (Exit.CONFIG, 1)


@pytest.mark.slow
def test_a_life_of_changes_at_two_replicas(files: dict[str, str]) -> None:
    with gateway() as one, gateway() as two:
        both = ("--endpoint", one.url, "--endpoint", two.url)
        applied = tandem("apply", files["blue"], "--note", "why", *both)
        assert applied.returncode == Exit.OK, applied.stderr
        assert applied.stdout.count("policy blue in place of base") == 2
        assert (one.surface.policy, two.surface.policy) == ("blue", "blue")
        shown = tandem("show", "--endpoint", one.url)
        assert yaml.safe_load(shown.stdout)["stretch"] == 2.0
        canary = tandem("canary", files["green"], "--share", "0.1", *both)
        assert canary.returncode == Exit.OK, canary.stderr
        assert "others.concurrent" in canary.stderr
        status = json.loads(tandem("canary", "--status", "--json", *both).stdout)
        assert set(status[two.url]["outcomes"]) == {"blue", "green"}
        assert "green (canary)" in tandem("canary", "--status", "--endpoint", one.url).stdout
        assert tandem("abort", *both).returncode == Exit.OK
        back = tandem("rollback", "base", *both)
        assert back.stdout.count("policy base in place of blue") == 2
        history = tandem("history", "--endpoint", two.url).stdout
        assert "rolled back" in history
        assert "kept in memory only" in history


@pytest.mark.slow
def test_where_one_replica_cannot_follow_none_does(files: dict[str, str]) -> None:
    with gateway() as one, gateway() as two:
        both = ("--endpoint", one.url, "--endpoint", two.url)
        assert tandem("canary", files["green"], "--share", "0.5", "--endpoint", two.url).returncode == Exit.OK
        result = tandem("apply", files["blue"], *both)
        assert result.returncode == Exit.FAILED
        assert len(result.stderr.splitlines()) == 1
        assert f"{one.url} is back at base" in result.stderr
        assert (one.surface.policy, two.surface.policy) == ("base", "base")
        nobody = tandem("apply", files["blue"], "--endpoint", one.url, "--endpoint", "http://127.0.0.1:1")
        assert (nobody.returncode, one.surface.policy) == (Exit.UNREACHABLE, "base")


def test_history_has_its_notes_in_full_on_80_columns_and_added_classes_are_called_so(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "chat.yaml").write_text("version: chat-first-2\nclasses: {chat: {tenants: [web]}}\n")
    note = "refusals as before, waits halved, so it may stay"
    with gateway() as one:
        at = ("--endpoint", one.url)
        assert "  classes.chat: added\n" in tandem("apply", str(tmp_path / "chat.yaml"), "--note", note, *at).stdout
        assert "  classes.chat: removed\n" in tandem("rollback", *at).stdout
        again = tandem("rollback", *at)
        assert (again.returncode, "no version was in force before base" in again.stderr) == (Exit.FAILED, True)
        lines = tandem("history", *at).stdout.splitlines()
    assert [line.split()[2:] for line in lines if line[0].isdigit()] == [
        ["rolled", "back", "base", "by", "anyone"],
        ["applied", "chat-first-2", "by", "anyone"],
        ["configured", "base", "by", "configuration"],
    ]
    assert lines[2].strip() == note
    assert max(map(len, lines)) <= 80


def test_a_name_that_is_taken_is_a_wrong_document(files: dict[str, str], tmp_path: Path) -> None:
    with gateway() as one:
        assert tandem("apply", files["blue"], "--endpoint", one.url).returncode == Exit.OK
        (tmp_path / "other.yaml").write_text("version: blue\nstretch: 3\n")
        result = tandem("apply", str(tmp_path / "other.yaml"), "--endpoint", one.url)
        assert (result.returncode, len(result.stderr.splitlines())) == (Exit.CONFIG, 1)
        assert tandem("rollback", "nobody", "--endpoint", one.url).returncode == Exit.FAILED


@pytest.mark.parametrize(
    "arguments",
    [
        ("canary",),
        ("canary", "FILE"),
        ("canary", "FILE", "--share", "2"),
        ("canary", "FILE", "--share", "0.1", "--abort-ttft", "0.5"),
        ("canary", "FILE", "--status"),
        ("replay", "x"),
    ],
)
def test_wrong_usage_has_its_own_status(arguments: tuple[str, ...], files: dict[str, str]) -> None:
    words = [files["blue"] if word == "FILE" else word for word in arguments]
    assert tandem(*words).returncode == Exit.USAGE


def test_replay_puts_two_policies_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "strict.yaml").write_text("version: strict\nothers: {requests_per_s: 1, burst_s: 1}\n")
    (tmp_path / "open.yaml").write_text("version: open\n")
    out = tmp_path / "out.json"
    result = tandem(
        "replay", "fixed isl=40 osl=10", "--rate", "20", "-n", "60",
        "--policy", str(tmp_path / "strict.yaml"), "--against", str(tmp_path / "open.yaml"),
        "--layout", "sim:--profile toy --colocated 1", "--out", str(out),
    )  # fmt: skip
    assert result.returncode == Exit.OK, result.stderr
    assert "rate_limited" in result.stdout
    document: dict[str, Any] = json.loads(out.read_text())
    strict, free = document["policies"]
    assert (strict["policy"], free["policy"]) == ("strict", "open")
    assert strict["total"]["refused"]["rate_limited"] > 40
    assert (free["total"]["admitted"], free["total"]["refused"]) == (60, {})
    wrong = tandem(
        "replay",
        str(tmp_path / "absent.jsonl"),
        "--policy",
        str(tmp_path / "open.yaml"),
        "--layout",
        "sim:--colocated 1",
    )
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (Exit.USAGE, 1)
