"""The services that every gRPC tool knows: health checking and reflection."""

from collections.abc import Iterable

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection


class Health:
    """Standard health of a server: the empty name is the server as a whole."""

    def __init__(self, services: Iterable[str]) -> None:
        self._names = ("", *sorted(services))
        self._servicer = health.aio.HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def set(self, serving: bool, services: Iterable[str] | None = None) -> None:
        """Sets every service, or those given (and then not the server as a whole)."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names if services is None else services:
            await self._servicer.set(name, status)


def add_standard_services(server: grpc.aio.Server, services: Iterable[str]) -> Health:
    """Adds health and reflection for `services` (full names); nothing is serving until `Health.set` says so."""
    names = sorted(services)
    checked = Health(names)
    checked.add_to(server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    return checked
