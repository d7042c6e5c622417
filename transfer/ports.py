"""Ports for servers that are about to start, on which nobody else will be by then.

Port 0 is no way to find one for another process: the kernel gives those ports to every connection that is opened, so
between looking and listening any client on the machine may get the same. Ports below that range are given to nobody.
"""

import errno
import socket
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom

_LOWEST = 10_240
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where the kernel does not say it: below what any common system gives to connections.
_BELOW = 32_768
_TRIES = 1_000


def free_ports(host: str, count: int, *, draw: Random | None = None, ephemeral: Path = _EPHEMERAL) -> tuple[int, ...]:
    """Ports nobody listens on now, all different; `draw` chooses among them.

    Where the kernel's own range leaves no room below it, they come from there. Raises OSError when none is free, and
    at once where nobody can listen on the host at all.
    """
    below = _first_ephemeral(ephemeral)
    with ExitStack() as held:
        if below <= _LOWEST + count:
            return tuple(_port(held.enter_context(listening(host, 0))) for _ in range(count))
        draw, found = draw or SystemRandom(), set[int]()
        for _ in range(_TRIES):
            if len(found) == count:
                return tuple(found)
            try:
                found.add(_port(held.enter_context(listening(host, draw.randrange(_LOWEST, below)))))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise  # of the host, then, and no other port will do
    raise OSError(f"{_TRIES} ports of {host} between {_LOWEST} and {below} were tried, and {count} are not free")


def listening(host: str, port: int) -> socket.socket:
    """Raises OSError where somebody else is."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _first_ephemeral(file: Path) -> int:
    try:
        return int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _BELOW
