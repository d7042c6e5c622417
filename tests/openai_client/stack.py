"""A whole simulated tandem inside the test process: gateway, prefill and decode worker, real HTTP and gRPC."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from engine.config import Backend, EngineConfig
from gateway.app import run_gateway
from gateway.config import GatewayConfig
from proto.worker import Role
from tandem.worker.config import WorkerConfig
from tandem.worker.process import run_worker
from tests.waiting import HANG_S, await_true
from transfer.ports import free_ports


@dataclass
class Stack:
    """Runs in a thread of its own, so that synchronous clients can talk to it."""

    config: GatewayConfig
    roles: tuple[Role, ...]
    engine: EngineConfig
    failure: BaseException | None = None
    _stop: Any = field(default=None)
    _running: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.port}"

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.failure = error

    async def _run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        self._running.set()
        join = (f"127.0.0.1:{self.config.grpc_port}",)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_gateway(self.config, stop))
            for at, role in enumerate(self.roles):
                worker = WorkerConfig(worker_id=f"{role}-{at}", role=role, join=join, engine=self.engine)
                tasks.create_task(run_worker(worker, stop))

    def wait_ready(self) -> None:
        with httpx.Client(base_url=self.url, timeout=HANG_S, trust_env=False) as client:

            def ready() -> bool:
                assert self.failure is None, self.failure
                try:
                    return client.get("/readyz").status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            await_true(ready)

    def stop(self) -> None:
        if self._running.wait(HANG_S):
            self._stop()


@contextmanager
def simulated_stack(*roles: Role, speedup: float = 1.0, **gateway: Any) -> Iterator[Stack]:
    """`gateway` overrides its configuration. Everything is handed off unless told otherwise."""
    defaults: dict[str, Any] = {"routing": {"local_prefill_below_tokens": 0}, "drain_s": 5}
    port, grpc_port = free_ports("127.0.0.1", 2)
    config = GatewayConfig.model_validate({**defaults, **gateway, "port": port, "grpc_port": grpc_port})
    engine = EngineConfig(backend=Backend.SIMULATED, served_name="sim", max_model_len=4096, speedup=speedup)
    stack = Stack(config, roles or (Role.PREFILL, Role.DECODE), engine)
    thread = threading.Thread(target=stack.run, name="stack")
    thread.start()
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.stop()
        thread.join(HANG_S)
    assert not thread.is_alive()
    assert stack.failure is None, stack.failure
