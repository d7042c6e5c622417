"""Channels and servers whose options agree, so that neither end hangs up on the other's manners."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

#: Prompt logprobs of a long prompt are the largest message.
MAX_MESSAGE_BYTES = 512 * 1024 * 1024


class TlsFiles(Protocol):
    """PEM files for mutual TLS; any config model with these fields will do."""

    @property
    def cert_file(self) -> str: ...
    @property
    def key_file(self) -> str: ...
    @property
    def ca_file(self) -> str: ...


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The client pings this often, calls or not; without an answer for `timeout_s` the connection is dead."""

    time_s: float = 10.0
    timeout_s: float = 5.0


#: What a gateway that stands still is sent of a stream before its worker is held up, and merges the steps that follow. gRPC's
#: own measure of the line made it up to a quarter of a megabyte: with small frames that is the news of 20 s, which the gateway
#: then went through frame by frame. A message that is larger is still sent at once.
READ_AHEAD_BYTES = 16 * 1024

Options = list[tuple[str, int]]


def _shared(keepalive: KeepAlive) -> Options:
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", int(keepalive.time_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(keepalive.timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def channel_options(keepalive: KeepAlive) -> Options:
    return [
        *_shared(keepalive),
        # A restarted worker must be found again in well under a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", READ_AHEAD_BYTES),
        # Retries are the lifecycle's decision, never the transport's.
        ("grpc.enable_retries", 0),
    ]


def server_options(keepalive: KeepAlive) -> Options:
    return [
        *_shared(keepalive),
        # The default answers pings of a silent call with GOAWAY, which kills every call of the connection (B-65).
        ("grpc.http2.min_ping_interval_without_data_ms", max(1, int(keepalive.time_s * 500))),
        ("grpc.http2.max_ping_strikes", 0),
        # Two workers on one port would answer each other's calls.
        ("grpc.so_reuseport", 0),
    ]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def open_channel(address: str, tls: TlsFiles | None = None, keepalive: KeepAlive | None = None) -> grpc.aio.Channel:
    """A channel to `host:port`; with `tls` both ends prove who they are."""
    options = channel_options(keepalive or KeepAlive())
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=Path(tls.ca_file).read_bytes(),
        private_key=Path(tls.key_file).read_bytes(),
        certificate_chain=Path(tls.cert_file).read_bytes(),
    )
    return grpc.aio.secure_channel(address, credentials, options=options)


def create_server(keepalive: KeepAlive | None = None) -> grpc.aio.Server:
    return grpc.aio.server(options=server_options(keepalive or KeepAlive()))


def bind(server: grpc.aio.Server, host: str, port: int, tls: TlsFiles | None = None) -> int:
    """Listens and returns the port, a free one for port 0. Raises OSError when it cannot."""
    address = join_host_port(host, port)
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, _server_credentials(tls))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    if bound == 0:
        raise OSError(f"cannot listen on {address}")
    return bound


def _server_credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(Path(tls.key_file).read_bytes(), Path(tls.cert_file).read_bytes())],
        root_certificates=Path(tls.ca_file).read_bytes(),
        require_client_auth=True,
    )
