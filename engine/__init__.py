"""Engines: the protocol that every engine honours, the vLLM adapter and the simulated engine."""
