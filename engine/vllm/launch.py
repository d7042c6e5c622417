"""Starting and stopping vLLM's engine processes."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.base import WorkerIdentity
from engine.config import EngineConfig
from engine.vllm.settings import engine_args, environment
from proto.worker import Topology
from transfer.links import local_topology
from transfer.ports import free_ports

#: Engines of one process start one after the other: their settings travel through the environment.
_STARTING = threading.Lock()

#: The process takes some seconds to end by itself; it has nothing to save, so after this it is killed.
_SHUTDOWN_S = 2.0


@dataclass(slots=True)
class Core:
    """A started engine: the connection to its process, and what turns our work into its requests."""

    client: Any
    inputs: Any
    config: Any
    topology: Topology
    port: int
    scratch: Path

    def unlink_shared_memory(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        """Once every rank has mapped the memory they share its name is of no use, and would outlive a killed engine."""
        for name in {str(rank["rendezvous"]) for rank in ranks} - {""}:
            for path in Path("/dev/shm").glob(f"{name}-*"):
                path.unlink(missing_ok=True)
            (Path(tempfile.gettempdir()) / name).unlink(missing_ok=True)

    def shutdown(self) -> None:
        self.inputs.renderer.shutdown()
        self.client.shutdown(timeout=_SHUTDOWN_S)
        shutil.rmtree(self.scratch, ignore_errors=True)


def launch(config: EngineConfig, identity: WorkerIdentity) -> Core:
    """Blocks until the engine is ready. The calling thread must outlive it.

    The engine's processes die with the thread that started them: see `transfer.nixl.plugin`.
    The connection is made one level below vLLM's AsyncLLM, which runs a task and a queue for every
    request: here one engine step arrives as one message, and is passed on as one frame.
    """
    with _STARTING:
        device = _device()
        topology = local_topology(device)
        # For hand-shakes. One is enough whatever the parallelism: a single listener answers for all ranks, and adds only
        # the data-parallel index, which is 0 here.
        (port,) = free_ports(config.kv_host, 1)
        scratch = Path(tempfile.mkdtemp(prefix="tandem-"))
        with _environ(environment(config, topology, port) | {"VLLM_RPC_BASE_PATH": str(scratch)}):
            try:
                return _launch(config, identity, topology, port, scratch)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise


def _launch(config: EngineConfig, identity: WorkerIdentity, topology: Topology, port: int, scratch: Path) -> Core:
    from vllm.renderers import renderer_from_config
    from vllm.v1.engine.core_client import EngineCoreClient
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.executor import Executor

    vllm_config = engine_args(config, identity, topology.device).create_engine_config()
    inputs = InputProcessor(vllm_config, renderer_from_config(vllm_config))
    client = EngineCoreClient.make_async_mp_client(
        vllm_config=vllm_config, executor_class=Executor.get_class(vllm_config), log_stats=True
    )
    return Core(client, inputs, vllm_config, topology, port, scratch)


def _device() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


@contextmanager
def _environ(values: Mapping[str, str]) -> Iterator[None]:
    """vLLM sets variables of its own while it starts; afterwards the environment is as it was."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
