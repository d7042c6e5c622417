"""Links: which transport a pair of workers should have, and what UCX is told of it.

UCX has one setting a worker and picks a way for each connection by itself; NIXL does not say which. So the link of a pair
is inferred: the fastest of what both ends' settings allow. What was measured on it is measured.
"""

import os
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from proto.worker import Topology


class Transport(StrEnum):
    NVLINK = "nvlink"
    RDMA = "rdma"
    SHM = "shm"
    TCP = "tcp"


class LinkError(ValueError):
    """The transport an operator asked for is not one that both ends have."""


def choose(reader: Topology, writer: Topology, wanted: Transport | None = None) -> Transport:
    """The fastest transport that both ends have; `wanted` insists on one and raises LinkError without it."""
    shared = available(reader, writer)
    if wanted is None:
        return shared[0]
    if wanted not in shared:
        ways = ", ".join(shared)
        raise LinkError(f"no {wanted} between {reader.host} and {writer.host}: they share {ways}")
    return wanted


def available(one: Topology, other: Topology) -> tuple[Transport, ...]:
    """Every transport of a pair, fastest first. TCP is always among them."""
    both = set(one.transports) & set(other.transports)
    same_host = bool(one.host) and one.host == other.host
    found = []
    if Transport.NVLINK in both and one.nvlink_domain and one.nvlink_domain == other.nvlink_domain:
        found.append(Transport.NVLINK)
    shared_memory = same_host and Transport.SHM in both
    on_cpu = one.device == other.device == "cpu"
    if shared_memory and on_cpu:  # a copy inside one memory beats a trip through the adapter
        found.append(Transport.SHM)
    if Transport.RDMA in both:
        found.append(Transport.RDMA)
    if shared_memory and not on_cpu:
        found.append(Transport.SHM)
    return (*found, Transport.TCP)


_TLS: Mapping[Transport, tuple[str, ...]] = {
    Transport.NVLINK: ("cuda_ipc", "cuda_copy", "shm", "cma", "tcp"),
    Transport.RDMA: ("rc", "dc", "ud", "tcp"),
    Transport.SHM: ("cma", "shm", "tcp"),  # TCP carries UCX's own wire-up, and peers on other hosts
    Transport.TCP: ("tcp",),
}


def ucx_settings(topology: Topology, wanted: Transport | None = None) -> dict[str, str]:
    """Environment for the engine's processes. One UCX context serves every peer, so this is per worker, not per pair.

    With no wish on a machine with GPUs or RDMA, UCX's own choice among everything it finds is right.
    """
    if wanted is None:
        if topology.device != "cpu" or Transport.RDMA in topology.transports:
            return {}
        wanted = Transport.SHM if Transport.SHM in topology.transports else Transport.TCP
    layers = list(_TLS[wanted])
    if topology.device == "cuda" and "cuda_copy" not in layers:
        layers.insert(0, "cuda_copy")
    return {"UCX_TLS": ",".join((*layers, "self"))}


#: What of UCX's layers carries a transport; the same thing has several names.
_CARRIES: Mapping[Transport, frozenset[str]] = {
    Transport.NVLINK: frozenset({"cuda_ipc", "cuda"}),
    Transport.RDMA: frozenset(
        {"ib", "rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud", "ud_x"}
    ),
    Transport.SHM: frozenset({"shm", "sm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}),
    Transport.TCP: frozenset({"tcp"}),
}


def offered(topology: Topology, ucx_tls: str) -> Topology:
    """What this worker's UCX may really use of what the machine has, so that no peer infers a link that is switched off.

    `ucx_tls` is UCX_TLS as its processes get it, whoever set it; empty, "all" or a list of exceptions rules nothing out.
    """
    layers = set(ucx_tls.split(","))
    if not ucx_tls or ucx_tls.startswith("^") or "all" in layers:
        return topology
    kept = [name for name in topology.transports if layers & _CARRIES.get(Transport(name), frozenset())]
    return replace(topology, transports=tuple(kept))


def poll_delay_us(topology: Topology) -> int:
    """NIXL's progress thread: busy polling where RDMA latency is worth a core, otherwise a nap of 1 ms."""
    return 0 if Transport.RDMA in topology.transports else 1000


def local_topology(device: str, sysfs: Path = Path("/sys"), environ: Mapping[str, str] = os.environ) -> Topology:
    """What this machine has. TANDEM_RACK and TANDEM_NVLINK_DOMAIN state what no file can tell."""
    host = environ.get("TANDEM_HOST", socket.gethostname())
    domain = environ.get("TANDEM_NVLINK_DOMAIN", "")
    if not domain and device == "cuda" and nvlink_active(_nvlink_status()):
        domain = host
    transports = [Transport.TCP]
    if os.access("/dev/shm", os.W_OK):
        transports.insert(0, Transport.SHM)
    if rdma_devices(sysfs):
        transports.insert(0, Transport.RDMA)
    if domain:
        transports.insert(0, Transport.NVLINK)
    return Topology(
        host=host,
        nvlink_domain=domain,
        rack=environ.get("TANDEM_RACK", ""),
        numa=",".join(numa_nodes(sysfs, os.sched_getaffinity(0))),
        device=device,
        transports=tuple(str(transport) for transport in transports),
    )


def rdma_devices(sysfs: Path = Path("/sys")) -> tuple[str, ...]:
    """RDMA devices with a port that is up."""
    states = (sysfs / "class" / "infiniband").glob("*/ports/*/state")
    return tuple(sorted({state.parents[2].name for state in states if "ACTIVE" in _read(state)}))


def numa_nodes(sysfs: Path, cpus: Iterable[int]) -> tuple[str, ...]:
    """NUMA nodes that the given CPUs belong to."""
    wanted = set(cpus)
    nodes = sorted((sysfs / "devices" / "system" / "node").glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return tuple(node.name[4:] for node in nodes if wanted & cpu_list(_read(node / "cpulist")))


def cpu_list(text: str) -> set[int]:
    """Parses the kernel's list format, for example "0-3,8"."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def nvlink_active(status: str) -> bool:
    """Whether `nvidia-smi nvlink --status` lists a link that carries traffic."""
    return any("Link" in line and "GB/s" in line for line in status.splitlines())


def _nvlink_status() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "nvlink", "--status"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
