"""The real engine: vLLM behind the Engine protocol. Importing this imports neither vLLM nor torch."""

from engine.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]
