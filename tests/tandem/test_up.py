"""The command itself, end to end, with simulated engines: real processes, real gRPC, real HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tandem.cli.failure import Exit
from tests import waiting
from tests.tandem.supervisor.cluster import alive_in_groups
from transfer.ports import free_ports

pytestmark = pytest.mark.slow

WAIT_S = 2 * waiting.HANG_S


await_true = partial(waiting.await_true, within_s=WAIT_S)


def tandem(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tandem", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=WAIT_S)


@dataclass
class Up:
    process: "subprocess.Popen[str]"
    endpoint: str
    directory: Path
    out: Path

    @property
    def text(self) -> str:
        return self.out.read_text()

    def groups(self) -> list[int]:
        """Process groups of everything it has started so far."""
        return [int(pid) for pid in re.findall(r"started, pid (\d+)", self.text)]

    def pid(self, name: str) -> int:
        return int(re.findall(rf"{name} +started, pid (\d+)", self.text)[-1])

    def status(self) -> dict[str, Any]:
        result = tandem("status", "--json", "--endpoint", self.endpoint, cwd=self.directory)
        assert result.returncode == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def worker(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(worker for worker in self.status()["workers"] if worker["worker_id"] == name)
        return found

    def complete(self, max_tokens: int = 4) -> httpx.Response:
        body = {"model": "toy", "prompt": "a prompt that is long enough to be handed off", "max_tokens": max_tokens}
        return httpx.post(f"{self.endpoint}/v1/completions", json=body, timeout=WAIT_S, trust_env=False)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


#: Of what is said when all is ready; each line is written by itself.
LAST_LINE = ", drains and stops."


def start(directory: Path, *arguments: str) -> Up:
    port = free_ports("127.0.0.1", 1)[0]
    out = directory / "out"
    command = [sys.executable, "-m", "tandem", "up", "--engine", "simulated", "--port", str(port), *arguments]
    with out.open("w") as file:
        process = subprocess.Popen(command, cwd=directory, stdout=file, stderr=subprocess.STDOUT, text=True)
    return Up(process, f"http://127.0.0.1:{port}", directory, out)


def await_ready(running: Up) -> None:
    """Fails with what `tandem up` has printed when it ends instead."""
    await_true(lambda: LAST_LINE in running.text or running.process.poll() is not None)
    assert LAST_LINE in running.text, running.text


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = start(tmp_path, "--prefill", "1", "--decode", "1")
    try:
        await_ready(running)
        yield running
    finally:
        if running.process.poll() is None:
            running.end()
        await_true(lambda: not alive_in_groups(running.groups()))


def test_the_pasted_curl_line_streams_an_answer(up: Up) -> None:
    found = re.search(
        r"^curl -N.*?(?=\n\n)", up.text, re.MULTILINE | re.DOTALL
    )  # several lines, to the first empty one
    assert found is not None
    result = subprocess.run(found[0], shell=True, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert result.stdout.rstrip().endswith("data: [DONE]")
    assert result.stdout.count("data: ") > 3


def test_b09_the_start_says_the_mode_and_kv_really_moves(up: Up) -> None:
    assert "disaggregated, at" in up.text
    assert re.search(r"prefill-0 → decode-0: usable, KV over \w+, .* measured", up.text)
    assert up.complete().status_code == 200
    await_true(lambda: up.status()["pairs"][0]["bytes"] > 0)
    assert up.status()["pairs"][0]["failures"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_and_the_exit_status_is_0(up: Up, number: signal.Signals) -> None:
    groups = up.groups()
    assert len(groups) == 3
    assert up.end(number) == Exit.OK
    assert alive_in_groups(groups) == []
    assert not list(up.directory.glob(".run/*/up.json"))


def test_a_signal_lets_running_answers_finish(up: Up) -> None:
    body = {"model": "toy", "prompt": [7] * 40, "max_tokens": 2000, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{up.endpoint}/v1/completions", json=body, timeout=WAIT_S, trust_env=False) as answer:
        lines = answer.iter_lines()
        next(lines)
        up.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    assert up.process.wait(WAIT_S) == Exit.OK


def test_kill_9_of_the_command_leaves_nothing(up: Up) -> None:
    groups = up.groups()
    up.process.kill()
    up.process.wait()
    await_true(lambda: not alive_in_groups(groups))


@pytest.mark.parametrize("name", ["decode-0", "prefill-0"])
def test_a_killed_worker_is_reported_restarted_and_serves_again(up: Up, name: str) -> None:
    epoch = up.worker(name)["epoch"]
    os.kill(up.pid(name), signal.SIGKILL)
    await_true(lambda: "killed by SIGKILL" in up.text)
    await_true(lambda: up.worker(name)["epoch"] != epoch and up.worker(name)["status"] == "ready")
    await_true(lambda: all(pair["state"] == "usable" for pair in up.status()["pairs"]))
    assert up.complete().status_code == 200


def test_a_killed_gateway_comes_back_and_its_workers_find_it(up: Up) -> None:
    os.kill(up.pid("gateway"), signal.SIGKILL)
    await_true(lambda: len(re.findall("gateway +started", up.text)) == 2)

    def answers() -> bool:
        try:
            return up.complete().status_code == 200
        except httpx.TransportError:
            return False

    await_true(answers)


def test_drain_and_resume_from_the_command_line(up: Up) -> None:
    where = ("--endpoint", up.endpoint)
    assert tandem("drain", "decode-0", *where, cwd=up.directory).returncode == Exit.OK
    await_true(lambda: up.worker("decode-0")["status"] == "draining")
    assert tandem("drain", "decode-0", "--resume", *where, cwd=up.directory).returncode == Exit.OK
    await_true(lambda: up.worker("decode-0")["status"] == "ready")
    assert tandem("drain", "decode-9", *where, cwd=up.directory).returncode == Exit.FAILED


def test_a_second_start_on_the_same_port_is_refused(up: Up) -> None:
    result = tandem("up", "--engine", "simulated", "--port", up.endpoint.rsplit(":", 1)[1], cwd=up.directory)
    assert result.returncode == Exit.UNMET
    assert "another `tandem up`" in result.stderr


def test_neither_torch_nor_vllm_is_loaded_by_any_process(up: Up) -> None:
    for process in (psutil.Process(up.process.pid), *map(psutil.Process, up.groups())):
        mapped = {Path(each.path).name for each in process.memory_maps()}
        assert not {name for name in mapped if "torch" in name or "vllm" in name}


def test_in_the_background_until_down(tmp_path: Path) -> None:
    port = str(free_ports("127.0.0.1", 1)[0])
    begun = tandem("up", "--engine", "simulated", "--colocated", "1", "--port", port, "--background", cwd=tmp_path)
    assert begun.returncode == Exit.OK, begun.stderr
    assert LAST_LINE in begun.stdout  # said as ready only when all of it had been printed
    assert "colocated, at" in begun.stdout
    groups = [int(pid) for pid in re.findall(r"started, pid (\d+)", begun.stdout)]
    assert len(alive_in_groups(groups)) >= 2
    assert tandem("down", "--port", port, cwd=tmp_path).returncode == Exit.OK
    assert alive_in_groups(groups) == []


def test_a_worker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    result = tandem("up", "--engine", "simulated", "--set", "engine.kv_cache_gib=1e-9", "--port", "0", cwd=tmp_path)
    assert result.returncode == Exit.FAILED
    assert "GiB hold no KV block of" in result.stdout
    assert "died while starting" in result.stdout


def test_keys_are_asked_of_clients_and_not_in_the_way_of_the_start(tmp_path: Path) -> None:
    running = start(tmp_path, "--set", "gateway.api_keys={acme: hunter2}")
    try:
        await_ready(running)
        assert running.complete().status_code == 401
        assert "hunter2" not in running.text
        for process in (running.process.pid, *running.groups()):
            command = " ".join(psutil.Process(process).cmdline())
            assert process == running.process.pid or "hunter2" not in command
    finally:
        ended = running.end()
    assert ended == Exit.OK
