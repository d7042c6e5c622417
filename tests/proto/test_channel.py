"""Both ends agree on keep-alive and sizes; mutual TLS admits only peers of the same authority."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from proto.channel import (
    MAX_MESSAGE_BYTES,
    KeepAlive,
    bind,
    channel_options,
    create_server,
    is_loopback,
    join_host_port,
    open_channel,
    server_options,
)
from proto.fault import Fault
from proto.services import PREFILL
from proto.tls import TlsConfig
from proto.work import PrefillDone
from tests.proto import certificates
from tests.proto.servers import DONE, WORK, Script, ask, serving
from tests.waiting import HANG_S, until


def test_files_that_are_no_certificates_are_said_before_grpc_cannot_listen(tmp_path: Path) -> None:
    """All that it says is: Failed to bind."""
    one, other = certificates.make(tmp_path, "one"), certificates.make(tmp_path, "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("{oops")

    def obstacle(cert: str = one.cert_file, key: str = one.key_file, ca: str = one.ca_file) -> str:
        return TlsConfig(cert_file=cert, key_file=key, ca_file=ca).obstacle()

    assert obstacle() == ""
    assert obstacle(key=other.key_file) == (
        f"{one.cert_file} and {other.key_file} are no certificate and its key (PEM, no pass phrase): key values mismatch"
    )
    assert obstacle(cert=str(junk)).startswith(f"{junk} and {one.key_file} are no certificate")
    assert obstacle(ca=one.key_file).startswith(f"{one.key_file} has no certificate (PEM)")
    assert obstacle(ca=str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"


@pytest.mark.slow
async def test_b65_a_long_silence_survives_the_pings_of_its_client() -> None:
    # The client pings at most once a second, and the third ping too many of a silent call costs the connection:
    # six seconds of silence kill the call on a server with default options, which shows that the test can fail.
    often = KeepAlive(time_s=0.2, timeout_s=HANG_S)

    async def silent_call(server: grpc.aio.Server) -> PrefillDone | Fault | grpc.StatusCode:
        async with serving(Script(silence_s=6.0), server) as address:
            try:
                return await ask(address, keepalive=often)
            except grpc.aio.AioRpcError as error:
                return error.code()

    ours, default = await asyncio.gather(silent_call(create_server(often)), silent_call(grpc.aio.server()))
    assert ours == DONE
    assert default is grpc.StatusCode.UNAVAILABLE


def test_b65_the_server_allows_pings_more_often_than_the_client_sends_them() -> None:
    keepalive = KeepAlive()
    client, server = dict(channel_options(keepalive)), dict(server_options(keepalive))
    assert server["grpc.http2.min_ping_interval_without_data_ms"] < client["grpc.keepalive_time_ms"]
    for option in (
        "grpc.max_send_message_length",
        "grpc.max_receive_message_length",
        "grpc.keepalive_permit_without_calls",
        "grpc.http2.max_pings_without_data",
    ):
        assert client[option] == server[option]
    assert client["grpc.max_receive_message_length"] == MAX_MESSAGE_BYTES


async def test_a_message_above_the_grpc_default_of_4_mib_passes() -> None:
    big = PrefillDone((1,) * 6_000_000, ticket=None)

    class Big(Script):
        async def prefill(self, work: object) -> PrefillDone:
            return big

    async with serving(Big()) as address:
        assert await ask(address) == big


async def test_b34_a_caller_that_leaves_cancels_the_handler_within_250_ms() -> None:
    script = Script(silence_s=HANG_S * 10)
    async with serving(script) as address, open_channel(address) as channel:
        call = PREFILL.unary(channel)(WORK)
        await until(lambda: script.asked == 1)
        call.cancel()
        await until(script.cancelled.is_set, 0.25)


async def test_mutual_tls_serves_a_peer_of_the_same_authority(tmp_path: Path) -> None:
    files = certificates.make(tmp_path, "fleet")
    async with serving(Script(), tls=files) as address:
        assert await ask(address, files) == DONE


async def test_mutual_tls_refuses_strangers_and_plain_text(tmp_path: Path) -> None:
    ours, theirs = certificates.make(tmp_path, "ours"), certificates.make(tmp_path, "theirs")
    # Knows our authority, but its own certificate comes from another.
    stranger = certificates.Files(theirs.cert_file, theirs.key_file, ours.ca_file)
    async with serving(Script(), tls=ours) as address:
        for files in (stranger, theirs, None):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(address, files, timeout_s=3.0)
            assert refused.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


async def test_a_port_in_use_is_an_error_not_a_shared_port() -> None:
    async with serving(Script()) as address:
        other = create_server()
        with pytest.raises(OSError, match="cannot listen"):
            bind(other, "127.0.0.1", int(address.rpartition(":")[2]))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("worker-1", False),
        ("::", False),
    ],
)
def test_loopback_hosts_are_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_ipv6_hosts_are_bracketed() -> None:
    assert join_host_port("::1", 80) == "[::1]:80"
    assert join_host_port("[::1]", 80) == "[::1]:80"
    assert join_host_port("10.0.0.1", 80) == "10.0.0.1:80"
