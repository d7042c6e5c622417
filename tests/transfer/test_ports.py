"""Ports for servers to come."""

import errno
import socket
from pathlib import Path
from random import Random

import pytest

from transfer.ports import free_ports, listening

HOST = "127.0.0.1"


def kernel(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "ip_local_port_range"
    file.write_text(text)
    return file


def test_no_connection_can_be_given_a_port_that_was_found(tmp_path: Path) -> None:
    """A start that lost its port to somebody's connection died once in a few hundred."""
    found = free_ports(HOST, 40, ephemeral=kernel(tmp_path, "20000\t60999\n"))
    assert len(set(found)) == 40
    assert max(found) < 20_000


def test_a_port_that_is_taken_is_not_found() -> None:
    (first,) = free_ports(HOST, 1, draw=Random(5))
    with listening(HOST, first):
        (second,) = free_ports(HOST, 1, draw=Random(5))
    assert second != first


@pytest.mark.parametrize("text", ["1024 65535", ""])
def test_without_a_range_below_the_kernel_chooses_or_a_common_bound_holds(tmp_path: Path, text: str) -> None:
    found = free_ports(HOST, 3, ephemeral=kernel(tmp_path, text))
    assert len(set(found)) == 3
    for port in found:
        with socket.create_server((HOST, port)):
            pass


def test_a_host_that_is_not_this_machines_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 1,000 ports of it were tried."""
    tried: list[int] = []

    def nowhere(host: str, port: int) -> socket.socket:
        tried.append(port)
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr("transfer.ports.listening", nowhere)
    with pytest.raises(OSError, match="Cannot assign"):
        free_ports("10.255.255.1", 2)
    assert len(tried) == 1
