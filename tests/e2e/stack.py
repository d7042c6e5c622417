"""A running tandem for tests: the `tandem up` a user would type, in a child process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.models import MODELS
from tests.waiting import HANG_S
from transfer.ports import free_ports

READY_WITHIN_S = 420.0
#: For gateways before little KV, where answers wait for each other: on a busy machine that takes longer than the defaults.
PATIENT = tuple(f"gateway.deadlines.{each}={3 * HANG_S}" for each in ("queue_s", "first_token_s", "idle_s"))
#: How often workers send their state, by default.
WATCH_INTERVAL_S = 0.5
JsonObject = dict[str, Any]

#: Asks all questions: a client of its own would load the certificates of the machine for each, 20 ms of work, and starting
#: engines need both cores. It keeps no connection, so that no gateway waits for one to close.
_HTTP = httpx.Client(timeout=HANG_S, verify=False, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway as its clients and operators see it, whoever started it."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def status(self) -> JsonObject:
        reply = _HTTP.get(f"{self.url}/tandem/v1/status")
        reply.raise_for_status()
        status: JsonObject = reply.json()
        return status

    def worker(self, worker_id: str) -> JsonObject:
        found: list[JsonObject] = [w for w in self.status()["workers"] if w["worker_id"] == worker_id]
        assert found, f"{worker_id} is not in the status"
        return found[0]

    def pairs(self) -> list[JsonObject]:
        pairs: list[JsonObject] = self.status()["pairs"]
        return pairs

    def bytes_moved(self) -> int:
        return sum(int(pair["bytes"]) for pair in self.pairs())

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return _HTTP.get(f"{self.url}/readyz").status_code == httpx.codes.OK
        return False

    def wait(self, what: str, holds: Callable[[JsonObject], bool], within_s: float) -> JsonObject:
        """Polls the status until `holds`; fails with the last status otherwise."""
        deadline = time.monotonic() + within_s
        status: JsonObject = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                status = self.status()
                if holds(status):
                    return status
            time.sleep(0.05)
        raise AssertionError(f"not within {within_s} s: {what}; last status {json.dumps(status)[:4000]}")

    def wait_idle(self, within_s: float = HANG_S) -> JsonObject:
        """Every lease, reservation, task and ticket count is zero, on the gateway and on the workers."""
        return self.wait("idle", is_idle, within_s)

    def settled_transfers(self) -> int:
        """The pair's counter once everything is idle and every worker has sent a state after that."""
        self.wait_idle()
        time.sleep(2 * WATCH_INTERVAL_S)
        return int(self.pairs()[0]["transfers"])

    def wait_transfers(self, count: int, within_s: float = HANG_S) -> None:
        """The pair's counter stands at exactly `count` once everything is idle; it comes with the next state."""
        self.wait(f"{count} transfers", lambda s: int(s["pairs"][0]["transfers"]) >= count and is_idle(s), within_s)
        assert self.pairs()[0]["transfers"] == count


@dataclass(frozen=True, slots=True)
class Stack(Gateway):
    """One `tandem up`. `supervisor` is its process; children are found by the worker's name."""

    supervisor: psutil.Process
    run_dir: Path

    def child(self, name: str) -> psutil.Process:
        """The worker's (or gateway's) own process, told by the log file it writes to."""
        for child in self.supervisor.children():
            with contextlib.suppress(OSError, psutil.Error):
                if Path(os.readlink(f"/proc/{child.pid}/fd/1")).name == f"{name}.log":
                    return child
        raise AssertionError(f"no child named {name}; see {self.run_dir}")

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while not self.is_ready():
            if not self.supervisor.is_running() or self.supervisor.status() == psutil.STATUS_ZOMBIE:
                raise AssertionError(f"tandem up ended; logs:\n{logs(self.run_dir)}")
            assert time.monotonic() < deadline, f"not ready in {within_s} s\n{logs(self.run_dir)}"
            time.sleep(0.2)


def is_idle(status: JsonObject) -> bool:
    held = status["integrity"]
    counts = ("requests", "queued", "reservations", "prefills", "tickets", "sequences", "cleanups")
    workers_idle = all(
        worker[count] == 0
        for worker in status["workers"]
        for count in ("reservations", "tickets_held", "running", "waiting", "blocks_reserved", "blocks_used")
    )
    return workers_idle and not any(held[count] for count in counts) and not held["overdue"]


def logs(run_dir: Path, tail: int = 3000) -> str:
    return "\n".join(f"== {log}\n{log.read_text(errors='replace')[-tail:]}" for log in run_dir.rglob("*.log"))


def paired(status: JsonObject) -> bool:
    """Whether both of two workers are there and can read each other's KV: a gateway is ready as soon as one worker is."""
    pairs, workers = status["pairs"], status["workers"]
    return (
        len(pairs) == 2
        and {each["state"] for each in pairs} == {"usable"}
        and all(each["status"] == "ready" for each in workers)
    )


@contextlib.contextmanager
def up(run_dir: Path, *flags: str, ready: bool = True) -> Iterator[Stack]:
    """Runs `tandem up` with `flags`, yields when ready, stops it with SIGTERM and checks that nothing is left."""
    (port,) = free_ports("127.0.0.1", 1)
    process = _start(run_dir, port, flags)
    supervisor = psutil.Process(process.pid)
    family: list[psutil.Process] = []
    try:
        stack = Stack(port, supervisor, run_dir)
        if ready:
            stack.wait_ready()
        yield stack
    finally:
        with contextlib.suppress(psutil.Error):
            family = supervisor.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(2 * HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        _, left = psutil.wait_procs(family, timeout=HANG_S)
        assert not left, f"still running after tandem up ended: {left}"


@contextlib.contextmanager
def colocated_gateway(stack: Stack, worker_id: str) -> Iterator[str]:
    """A second gateway over one of the stack's decode workers alone: every prompt prefills there. Yields its URL."""
    with another_gateway(stack, (worker_id,), "gateway.routing.on_no_prefill=local") as gateway:
        yield gateway.url


@contextlib.contextmanager
def another_gateway(stack: Stack, worker_ids: Sequence[str], *settings: str) -> Iterator[Gateway]:
    """A second gateway over some of the stack's workers, with `settings` of its own (KEY=VALUE)."""
    (port,) = free_ports("127.0.0.1", 1)
    argv = [sys.executable, "-m", "tandem", "gateway", "--port", str(port)]
    argv += [part for each in worker_ids for part in ("--worker", stack.worker(each)["address"])]
    argv += [part for each in settings for part in ("--set", each)]
    with (stack.run_dir / f"gateway-{port}.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    gateway = Gateway(port)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not gateway.is_ready():
            assert process.poll() is None, "the gateway ended"
            assert time.monotonic() < deadline, "the gateway did not get ready"
            time.sleep(0.1)
        yield gateway
    finally:
        process.terminate()
        process.wait(2 * HANG_S)


def _start(run_dir: Path, port: int, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
    run_dir.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "tandem", "up", "--port", str(port), "--set", f"supervisor.run_dir={run_dir}"]
    with (run_dir / "up.log").open("wb") as log:
        return subprocess.Popen(
            [*argv, *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TANDEM_MODELS_DIR": str(MODELS)},
        )
