"""Kernel times from aiconfigurator-core, split the way our table splits a step."""

import importlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

SYSTEM = "h200_sxm"
BACKEND = "vllm"
DATABASE = "0.24.0"

#: The operations that depend on context; everything else depends on the number of tokens alone.
_ATTENTION = frozenset({"context_attention", "generation_attention", "context_mla_block", "generation_mla_block"})
_COLLECTIVE = ("_ar", "allreduce", "dispatch", "p2p")
_S = 1e-3  # the source answers in milliseconds


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds of the operations without attention, by what bounds them."""

    total_s: float
    memory_s: float
    collective_s: float


class Source:
    """One model on one layout. Tables are built with one pipeline stage: more only add the hops between them."""

    def __init__(self, model_path: str, *, tp: int, ep: int, moe: bool, quant: dict[str, str], pp: int = 1) -> None:
        logging.disable(logging.WARNING)
        options: dict[str, Any] = {"tp_size": tp, "pp_size": pp, **quant}
        if moe:
            options |= {"moe_tp_size": tp // ep, "moe_ep_size": ep}
        engine = importlib.import_module("aiconfigurator_core.sdk.engine")
        self._engine = engine.EngineHandle.compile(model_path, SYSTEM, BACKEND, **options)
        self._spec = _spec(engine, model_path, options)
        self._options = options
        self.model_path = model_path

    # totals, exactly as the source answers them

    def decode_s(self, batch: int, context: int) -> float:
        return float(self._engine.decode_step_latency(batch, context, 2)) * _S

    def prefill_s(self, prompts: int, tokens: int, context: int) -> float:
        return float(self._engine.predict_prefill_latency(prompts, tokens + context, context)) * _S

    def mixed_s(self, tokens: int, decodes: int, prompt: int) -> float:
        """A chunk of `tokens` of prompts of length `prompt`, averaged over their chunks, beside decodes at that context."""
        return float(self._engine.mixed_step_latency(tokens, decodes, prompt, 2)) * _S

    # the parts

    @lru_cache(maxsize=1 << 18)  # noqa: B019 - a source lives as long as the build of its layout
    def decode_rest_s(self, batch: int) -> float:
        operations = self._engine.decode_step_per_op(batch, 1, 2)
        return _S * _sum(ms for name, ms, *_ in operations if name not in _ATTENTION)

    def decode_attention_s(self, batch: int, context: int) -> float:
        return self.decode_s(batch, context) - self.decode_rest_s(batch)

    @lru_cache(maxsize=1 << 18)  # noqa: B019
    def step_rest_s(self, tokens: int) -> float:
        """Everything but attention for a step of `tokens` tokens, as the source's mixed step has it."""
        shared = self._engine.mixed_step_breakdown_per_op(tokens, 0, tokens, 2)[0]
        return _S * _sum(ms for name, ms, *_ in shared if name not in _ATTENTION)

    def prompt_attention_s(self, tokens: int, context: int = 0, prompts: int = 1) -> float:
        operations, _ = self._engine.run_static_per_op(
            batch_size=prompts, isl=tokens + context, osl=2, prefix=context, mode="static_ctx"
        )
        return _S * _sum(ms for name, ms, *_ in operations if name in _ATTENTION)

    def decode_split(self, batch: int) -> Split:
        return self._split("generation_ops", batch)

    def step_split(self, tokens: int) -> Split:
        return self._split("context_ops", tokens)

    def _split(self, phase: str, tokens: int) -> Split:
        memory = collective = total = 0.0
        for operation in _without_attention(self._spec[phase], lambda ops: self._evaluate(ops, tokens)):
            name = _name(operation)
            # The source's mixed step computes logits for one sequence, whatever the number of tokens.
            seconds = self._evaluate([operation], 1 if name == "context_logits_gemm" else tokens)
            total += seconds
            if any(mark in name for mark in _COLLECTIVE):
                collective += seconds
            elif self._memory_bound(operation, tokens):
                memory += seconds
        return Split(total, memory, collective)

    def _evaluate(self, operations: list[Any], tokens: int) -> float:
        values = self._engine.evaluate_ops_json(
            json.dumps(operations), is_context=True, batch_size=1, s=tokens, x=tokens
        )
        return _S * _sum(ms for _, ms, *_ in values)

    def _memory_bound(self, operation: Any, tokens: int) -> bool:
        roofline = self._engine.evaluate_ops_sol_json(
            json.dumps([operation]), is_context=True, batch_size=1, s=tokens, x=tokens
        )
        return all(memory >= arithmetic for _, _, arithmetic, memory in roofline)

    def memory(self, max_tokens: int) -> dict[str, float]:
        """Bytes on each GPU that are not KV, and KV bytes of a token on each GPU."""
        module = importlib.import_module("aiconfigurator_core.sdk.memory")
        breakdown = module.KVCacheEstimator.from_request(
            self.model_path, SYSTEM, BACKEND, DATABASE, max_num_tokens=max_tokens, max_batch_size=256, **self._options
        ).breakdown
        return {key: float(value) for key, value in breakdown.items() if key.endswith("_bytes") and not callable(value)}


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))


def _name(operation: Any) -> str:
    ((_, fields),) = operation.items()
    return str(fields["name"])


def _without_attention(operations: list[Any], evaluate: Callable[[list[Any]], float]) -> list[Any]:
    """Of two groups that overlap only the slower one takes time."""
    flat: list[Any] = []
    for operation in operations:
        ((kind, fields),) = operation.items()
        if kind == "Overlap":
            first, second = list(fields["group_a"]), list(fields["group_b"])
            flat += first if evaluate(first) >= evaluate(second) else second
        elif fields["name"] not in _ATTENTION:
            flat.append(operation)
    return flat


def _spec(engine: Any, model_path: str, options: dict[str, Any]) -> Any:
    builders = importlib.import_module("aiconfigurator_core.sdk.config_builders")
    models = importlib.import_module("aiconfigurator_core.sdk.models")
    database = importlib.import_module("aiconfigurator_core.sdk.perf_database")
    parallel = {"attention_dp_size": 1, "moe_tp_size": 1, "moe_ep_size": 1} | options
    model = models.get_model(model_path, builders.build_model_config(**parallel), BACKEND)
    return json.loads(
        engine.build_engine_spec_json(
            model,
            model_path=model_path,
            system=SYSTEM,
            backend=BACKEND,
            backend_version=DATABASE,
            kv_block_size=None,
            systems_path=None,
            nextn=0,
            database=database.get_database(SYSTEM, BACKEND, DATABASE, systems_paths=None),
        )
    )


def local_model(config: dict[str, Any]) -> str:
    """A model that the source has no configuration for, as the directory it accepts instead."""
    directory = Path(tempfile.mkdtemp(prefix="tandem-model-"))
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)
