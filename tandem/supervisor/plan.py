"""From the configuration to the processes to start: pure, and checked before anything starts."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import Backend, EngineConfig
from proto.worker import Role
from tandem.config import POOL_NAMES, TandemConfig, plain
from tandem.supervisor import run_state
from tandem.supervisor.child import ChildSpec, Kind
from tandem.supervisor.machine import Machine

GIB = 1024**3
#: Python, torch and the compiled kernels of one engine process on a CPU, without weights and KV.
RUNTIME_GIB = 1.2
#: The KV space an engine on a CPU takes when none is configured.
DEFAULT_KV_GIB = 1.0
#: Above this share of the memory, workers load one after another: loading needs more than running.
STAGGER_ABOVE = 0.7


class PlanError(Exception):
    """The layout cannot run on this machine; the message names cause and fix."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker before it becomes a process."""

    name: str
    role: Role
    engine: EngineConfig
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    host: str
    port: int
    mode: str
    gateway: ChildSpec
    workers: tuple[ChildSpec, ...]
    run_dir: Path
    staggered: bool

    @property
    def endpoint(self) -> str:
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://[{shown}]:{self.port}" if ":" in shown else f"http://{shown}:{self.port}"

    @property
    def children(self) -> tuple[ChildSpec, ...]:
        return (self.gateway, *self.workers)


def make_plan(config: TandemConfig, machine: Machine, *, http_port: int, grpc_port: int, supervisor_pid: int) -> Plan:
    """Raises PlanError when the machine has too few GPUs or too little memory."""
    workers = _share_threads(_assign_gpus(_workers(config), machine), machine)
    estimate = sum(memory_gib(worker.engine) for worker in workers if not worker.gpus) * GIB
    if estimate > machine.memory_bytes:
        raise PlanError(
            f"{len(workers)} workers need about {estimate / GIB:.1f} GiB of memory and "
            f"{machine.memory_bytes / GIB:.1f} GiB are available; start fewer workers (--prefill, --decode, "
            "--colocated), a smaller --kv-cache-gib or a smaller --model"
        )
    run_dir = run_state.folder(config.supervisor.run_dir, http_port)
    history = config.gateway.policy_history or str(run_dir / "policy-history.jsonl")
    lengths = config.gateway.lengths_file or str(run_dir / "lengths.json")
    places = {"port": http_port, "grpc_port": grpc_port, "policy_history": history, "lengths_file": lengths}
    gateway = config.gateway.model_copy(update=places)
    join = f"{gateway.grpc_host}:{grpc_port}"
    return Plan(
        host=gateway.host,
        port=http_port,
        mode="colocated" if all(worker.role is Role.BOTH for worker in workers) else "disaggregated",
        gateway=_spec("gateway", Kind.GATEWAY, plain(gateway), run_dir, supervisor_pid, {}, gateway.drain_s),
        workers=tuple(_worker_spec(worker, config, join, run_dir, supervisor_pid) for worker in workers),
        run_dir=run_dir,
        staggered=len(workers) > 1 and estimate > STAGGER_ABOVE * machine.memory_bytes,
    )


def memory_gib(engine: EngineConfig) -> float:
    """A cautious guess of what one worker takes of a machine's memory, all ranks together."""
    if engine.backend is Backend.SIMULATED:
        return 0.15
    ranks = engine.tp * engine.pp
    kv = engine.kv_cache_gib or DEFAULT_KV_GIB
    return ranks * (RUNTIME_GIB + kv) + _weights_gib(engine)


def _weights_gib(engine: EngineConfig) -> float:
    weights = sum(file.stat().st_size for file in Path(engine.model).glob("*.safetensors"))
    return weights * _growth_on_load(engine) / GIB


def _growth_on_load(engine: EngineConfig) -> float:
    """Weights stored in 16 bits double when they are computed in 32."""
    try:
        stored = json.loads((Path(engine.model) / "config.json").read_text()).get("dtype", "float32")
    except (OSError, ValueError):
        return 1.0
    return 2.0 if engine.dtype in ("auto", "float32") and stored in ("float16", "bfloat16") else 1.0


def _workers(config: TandemConfig) -> list[WorkerPlan]:
    return [
        WorkerPlan(f"{POOL_NAMES[role]}-{index}", role, config.engine_of(role))
        for role in (Role.PREFILL, Role.DECODE, Role.BOTH)
        for index in range(config.layout.workers(role))
    ]


def _assign_gpus(workers: Sequence[WorkerPlan], machine: Machine) -> list[WorkerPlan]:
    """Whole GPUs, one TP group after another, so that a group's GPUs are neighbours."""
    real = [worker for worker in workers if worker.engine.backend is Backend.VLLM]
    if not machine.gpus or not real:
        return list(workers)
    needed = sum(worker.engine.tp * worker.engine.pp for worker in real)
    if needed > len(machine.gpus):
        raise PlanError(
            f"the layout needs {needed} GPUs and {len(machine.gpus)} are visible; start fewer workers, lower "
            "--prefill-tp/--decode-tp, or set CUDA_VISIBLE_DEVICES"
        )
    free = list(machine.gpus)
    assigned = []
    for worker in workers:
        ranks = worker.engine.tp * worker.engine.pp if worker.engine.backend is Backend.VLLM else 0
        assigned.append(WorkerPlan(worker.name, worker.role, worker.engine, tuple(free[:ranks])))
        free = free[ranks:]
    return assigned


def _share_threads(workers: Sequence[WorkerPlan], machine: Machine) -> list[WorkerPlan]:
    """Each rank gets its share of the cores; more threads than cores makes every worker slower."""
    ranks = sum(worker.engine.tp * worker.engine.pp for worker in workers)
    threads = max(1, machine.cores // max(1, ranks))
    return [
        WorkerPlan(
            worker.name,
            worker.role,
            worker.engine.model_copy(update={"omp_threads": worker.engine.omp_threads or threads}),
            worker.gpus,
        )
        for worker in workers
    ]


def _worker_spec(worker: WorkerPlan, config: TandemConfig, join: str, run_dir: Path, supervisor_pid: int) -> ChildSpec:
    own = config.worker_of(worker.role, worker_id=worker.name, join=(join,), port=0, engine=worker.engine)
    env = {"OMP_NUM_THREADS": str(worker.engine.omp_threads)}
    if worker.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(worker.gpus)
    if worker.engine.backend is Backend.VLLM and Path(worker.engine.model).is_dir():
        env["HF_HUB_OFFLINE"] = "1"  # nothing to ask a hub for, and no wait when there is none
    return _spec(worker.name, Kind.WORKER, plain(own), run_dir, supervisor_pid, env, own.drain_s)


def _spec(
    name: str,
    kind: Kind,
    document: dict[str, Any],
    run_dir: Path,
    supervisor_pid: int,
    env: dict[str, str],
    drain_s: float,
) -> ChildSpec:
    return ChildSpec(
        name=name,
        kind=kind,
        argv=(sys.executable, "-m", "tandem.supervisor.entry", kind, str(supervisor_pid), name),  # the name is for ps
        document=json.dumps(document).encode(),
        env={"PYTHONUNBUFFERED": "1"} | env,
        log=run_dir / f"{name}.log",
        drain_s=drain_s,
    )
