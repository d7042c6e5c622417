"""What this machine has to give: cores, memory, GPUs, ports."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from transfer.ports import listening

_GPUS = Path("/proc/driver/nvidia/gpus")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int
    memory_bytes: int  # what can be had now, within the container's limit
    gpus: tuple[str, ...]


def inspect() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, _memory_available(), _gpus())


def _memory_available() -> int:
    available = int(psutil.virtual_memory().available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return available
    return min(available, max(0, limit - used))


def _gpus() -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(part.strip() for part in visible.split(",") if part.strip() not in ("", "-1"))
    try:
        return tuple(str(index) for index, _ in enumerate(_GPUS.iterdir()))
    except OSError:
        return ()


def port_is_free(host: str, port: int) -> bool:
    return not obstacle(host, port)


def obstacle(host: str, port: int) -> str:
    """Why this process cannot listen there, "" where it can. Port 0 asks of the host alone."""
    try:
        with listening(host, port):
            return ""
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return str(error.strerror or error).partition(" (while")[0]
    owner = owner_of(port)
    return f"it is in use by {owner}" if owner else "it is in use"


def owner_of(port: int) -> str:
    """Who listens on a port, as far as this user may know."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return ""
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            if connection.pid is None:
                return ""
            try:
                process = psutil.Process(connection.pid)
                return f"{process.name()}, pid {process.pid}"
            except psutil.Error:
                return f"pid {connection.pid}"
    return ""
