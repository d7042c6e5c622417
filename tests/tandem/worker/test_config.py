"""Where peers look for a worker's KV."""

import socket

import pytest

from engine.config import EngineConfig
from tandem.worker.config import WorkerConfig


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`here` is this machine, `elsewhere` another one."""
    addresses = {"here": "127.0.0.2", "elsewhere": "192.0.2.7"}

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in addresses and not host[:1].isdigit():
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "here")


@pytest.mark.parametrize(
    ("own", "host"),
    [
        ({}, "127.0.0.1"),
        ({"host": "127.0.0.3"}, "127.0.0.3"),
        ({"host": "0.0.0.0"}, "127.0.0.2"),
        ({"host": "0.0.0.0", "advertise_host": "127.0.0.4"}, "127.0.0.4"),
        ({"host": "0.0.0.0", "advertise_host": "here"}, "127.0.0.2"),
    ],
)
def test_kv_is_where_the_worker_is(own: dict[str, str], host: str) -> None:
    assert WorkerConfig.model_validate(own).reachable_engine().kv_host == host


def test_what_was_set_goes_before() -> None:
    config = WorkerConfig(host="0.0.0.0", engine=EngineConfig(kv_host="127.0.0.9"))
    assert config.reachable_engine().kv_host == "127.0.0.9"


@pytest.mark.parametrize("advertised", ["elsewhere", "no-such-name"])
def test_an_address_that_is_not_this_machines_is_not_listened_at(
    advertised: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = WorkerConfig(host="0.0.0.0", advertise_host=advertised)
    assert config.reachable_engine().kv_host == "127.0.0.1"
    assert "engine.kv_host" in caplog.text
