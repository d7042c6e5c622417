"""Which engine a worker runs. Engines are imported when they are chosen: torch takes seconds and gigabytes."""

from engine.base import Engine, WorkerIdentity
from engine.config import Backend, EngineConfig


def make_engine(config: EngineConfig, identity: WorkerIdentity) -> Engine:
    match config.backend:
        case Backend.SIMULATED:
            from engine.simulated import SimulatedEngine

            return SimulatedEngine(config, identity)
        case Backend.VLLM:
            from engine.vllm import VllmEngine

            return VllmEngine(config, identity)
