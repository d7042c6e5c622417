"""What a configuration leaves open to whoever can reach the machine."""

from gateway.config import GatewayConfig
from proto.channel import is_loopback


def open_doors(config: GatewayConfig) -> list[str]:
    """One warning a door, with what closes it; none for what only this machine can reach."""
    doors = []
    if not is_loopback(config.host) and not config.api_keys:
        doors.append(
            f"HTTP on {config.host or 'every address'} asks for no key: whoever can reach it may use the model, drain "
            "workers and change their roles. Set gateway.api_keys (and gateway.operators), or listen on 127.0.0.1"
        )
    if not is_loopback(config.grpc_host) and config.tls is None:
        doors.append(
            f"workers join on {config.grpc_host or 'every address'} without TLS: whoever can reach it may join as a "
            "worker and be sent prompts. Set gateway.tls, or listen on 127.0.0.1 with gateway.grpc_host"
        )
    return doors
