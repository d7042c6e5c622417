"""An engine that behaves like the real one and computes nothing."""

from engine.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
