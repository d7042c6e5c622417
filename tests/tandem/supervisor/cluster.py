"""A cluster without engines: children are tiny scripts, and the probe answers from their files."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gateway.cluster.snapshot import ClusterSnapshot, PairSnapshot, WorkerSnapshot
from gateway.cluster.states import PairState, WorkerStatus
from proto.worker import Role
from tandem.client import snapshot_of
from tandem.config import SupervisorConfig
from tandem.supervisor.child import ChildSpec, Death, Kind
from tandem.supervisor.plan import Plan
from tests.waiting import HANG_S

#: Ends at SIGTERM like a well-behaved child, and leaves a grandchild behind like an engine does.
OBEDIENT = "import subprocess, sys, time; subprocess.Popen(['sleep', '900']); print('up', flush=True); time.sleep(900)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(900)"
)
DYING = "import sys; print('no such model', flush=True); sys.exit(7)"

QUICK = SupervisorConfig(
    start_timeout_s=HANG_S, stop_timeout_s=1.0, restart_backoff_s=0.05, restart_backoff_max_s=0.2, restarts_max=2
)


def spec(name: str, script: str, run_dir: Path, kind: Kind = Kind.WORKER, drain_s: float = 0.0) -> ChildSpec:
    return ChildSpec(name, kind, (sys.executable, "-I", "-S", "-c", script), run_dir / f"{name}.log", drain_s=drain_s)


def plan_of(run_dir: Path, gateway: str = OBEDIENT, prefill: str = OBEDIENT, decode: str = OBEDIENT) -> Plan:
    return Plan(
        host="127.0.0.1",
        port=8000,
        mode="disaggregated",
        gateway=spec("gateway", gateway, run_dir, Kind.GATEWAY),
        workers=(spec("prefill-0", prefill, run_dir), spec("decode-0", decode, run_dir)),
        run_dir=run_dir,
        staggered=False,
    )


def worker_snapshot(
    name: str, role: Role, status: WorkerStatus = WorkerStatus.READY, epoch: str = "1"
) -> WorkerSnapshot:
    document = {"worker_id": name, "role": role, "status": status, "epoch": epoch, "model": "toy", "engine": "fake"}
    return snapshot_of({"workers": [document]}).workers[0]


def pair_snapshot(state: PairState = PairState.USABLE) -> PairSnapshot:
    document = {"prefill_worker": "prefill-0", "decode_worker": "decode-0", "state": state, "transport": "shm"}
    return snapshot_of({"pairs": [document]}).pairs[0]


@dataclass
class FakeProbe:
    """Answers like a gateway whose workers are all ready; tests change what it says."""

    ready: bool = True
    workers: dict[str, WorkerSnapshot] = field(
        default_factory=lambda: {
            "prefill-0": worker_snapshot("prefill-0", Role.PREFILL),
            "decode-0": worker_snapshot("decode-0", Role.DECODE),
        }
    )
    pair: PairSnapshot = field(default_factory=pair_snapshot)

    async def __call__(self) -> tuple[bool, ClusterSnapshot] | None:
        return self.ready, ClusterSnapshot(
            gateway_id="g",
            mode="disaggregated",
            missing="" if self.ready else "no usable pair",
            workers=tuple(self.workers.values()),
            pairs=(self.pair,),
            in_flight={},
            queued=0,
        )


@dataclass
class Recorder:
    """A reporter that remembers."""

    started_pids: dict[str, list[int]] = field(default_factory=dict)
    states: list[tuple[str, str]] = field(default_factory=list)
    deaths: list[tuple[Death, float | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: Sequence[str] = ()

    def begin(self, plan: Plan) -> None:
        pass

    def started(self, name: str, pid: int) -> None:
        self.started_pids.setdefault(name, []).append(pid)

    def state(self, name: str, state: str, detail: str) -> None:
        self.states.append((name, state))

    def ready(self, lines: Sequence[str]) -> None:
        self.summary = lines

    def died(self, death: Death, log: str, restart_in_s: float | None) -> None:
        self.deaths.append((death, restart_in_s))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None:
        pass


def alive_in_groups(groups: Sequence[int]) -> list[psutil.Process]:
    """Every live process that belongs to one of the process groups."""
    import os

    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) in groups and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.Error):
            continue
    return found
