"""Where workers announce themselves: the Registry service of a gateway."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.config import GatewayConfig
from proto import services
from proto.channel import bind, create_server, join_host_port
from proto.join import JoinReply, JoinRequest
from proto.method import register, serve_unary
from proto.standard import add_standard_services

#: Workers announce themselves again this often, so that a gateway that restarts finds them.
REJOIN_S = 2.0


class Registry:
    """`joined` returns why a worker may not join, or nothing."""

    def __init__(self, config: GatewayConfig, joined: Callable[[JoinRequest], str]) -> None:
        self._config = config
        self._joined = joined
        self._server = create_server()
        self.address = ""

    async def __aenter__(self) -> Self:
        names = register(self._server, [serve_unary(services.JOIN, self._join)])
        health = add_standard_services(self._server, names)
        port = bind(self._server, self._config.grpc_host, self._config.grpc_port, self._config.tls)
        await self._server.start()
        await health.set(True)
        self.address = join_host_port(self._config.grpc_host, port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(grace=0.2)

    async def _join(self, request: JoinRequest) -> JoinReply:
        reason = self._joined(request)
        return JoinReply(accepted=not reason, reason=reason, next_join_s=REJOIN_S)
