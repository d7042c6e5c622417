"""Runs scenarios on vLLM's own scheduler, without a model: scenarios as JSON on stdin, traces on stdout."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from tests.engine.simulated.scenarios import Scenario, StepTrace, answer_token, prompt_tokens


class ScriptedConnector(KVConnectorBase_V1):  # type: ignore[misc]  # vLLM is not there where types are checked
    """Claims to have the external tokens of a request once, as a hand-off does."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        params = request.kv_transfer_params or {}
        count = max(0, params.get("external", 0) - num_computed_tokens)
        return count, count > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if request.kv_transfer_params:
            request.kv_transfer_params["external"] = 0

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...
    def wait_for_layer_load(self, layer_name: str) -> None: ...
    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None: ...
    def wait_for_save(self) -> None: ...


def build(scenario: Scenario, model: str) -> Scheduler:
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, skip_tokenizer_init=True, dtype="float32", max_model_len=scenario["max_model_len"]
        ),
        cache_config=CacheConfig(block_size=scenario["block_size"], enable_prefix_caching=scenario["caching"]),
        scheduler_config=SchedulerConfig(
            max_num_seqs=scenario["max_num_seqs"],
            max_num_batched_tokens=max(scenario["max_batched_tokens"], scenario["max_num_seqs"]),
            max_num_scheduled_tokens=scenario["max_batched_tokens"],
            max_model_len=scenario["max_model_len"],
            long_prefill_token_threshold=scenario["long_prefill_threshold"],
            watermark=scenario["watermark"],
            policy=scenario["policy"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        device_config=DeviceConfig(device="cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="ScriptedConnector",
            kv_connector_module_path="tests.engine.simulated.drive_vllm",
            kv_role="kv_both",
        ),
    )
    blocks = scenario["blocks"] + 1  # one is vLLM's null block
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=scenario["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=scenario["block_size"],
    )


def make_request(entry: dict[str, Any], arrival: float, hasher: Any) -> Request:
    return Request(
        request_id=entry["id"],
        prompt_token_ids=prompt_tokens(entry),
        sampling_params=SamplingParams(
            max_tokens=entry["answer"],
            ignore_eos=True,
            extra_args={"kv_transfer_params": {"external": entry["external"]}},
        ),
        pooling_params=None,
        arrival_time=arrival,
        priority=entry["priority"],
        cache_salt=entry["salt"] or None,
        block_hasher=hasher,
    )


def observe(scheduler: Scheduler, planned: dict[str, int], preemptions: dict[str, int]) -> StepTrace:
    running = [request.request_id for request in scheduler.running]
    preempted = [
        name for name, request in scheduler.requests.items() if request.num_preemptions > preemptions.get(name, 0)
    ]
    return {
        "planned": [[name, planned[name]] for name in running if name in planned],
        "preempted": sorted(preempted),
        "running": running,
        "waiting": [request.request_id for request in (*scheduler.kv_holding_waiting, *scheduler.waiting)],
        "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    }


def sample(scheduler: Scheduler, names: list[str], entries: dict[str, Any], arrived: set[str]) -> ModelRunnerOutput:
    sampled = []
    for name in names:
        request = scheduler.requests[name]
        caught_up = request.num_computed_tokens >= request.num_tokens
        sampled.append([answer_token(entries[name], request.num_output_tokens)] if caught_up else [])
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=sampled,
        kv_connector_output=KVConnectorOutput(finished_recving={n for n in arrived if n in scheduler.requests}),
    )


def run(scenario: Scenario, model: str) -> list[StepTrace]:
    scheduler = build(scenario, model)
    hasher = get_request_block_hasher(scenario["block_size"], sha256)
    entries = {entry["id"]: entry for entry in scenario["requests"]}
    loading: dict[str, int] = {}
    trace: list[StepTrace] = []
    arrival = 0.0
    step = 0
    while step < 2000 and (scheduler.has_unfinished_requests() or any(e["step"] >= step for e in entries.values())):
        for entry in scenario["requests"]:
            if entry["step"] == step:
                arrival += 1
                scheduler.add_request(make_request(entry, arrival, hasher))
            if entry["abort"] == step:
                scheduler.finish_requests(entry["id"], RequestStatus.FINISHED_ABORTED)
        preemptions = {name: request.num_preemptions for name, request in scheduler.requests.items()}
        output = scheduler.schedule()
        for name, request in scheduler.requests.items():
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS and name not in loading:
                loading[name] = step + entries[name]["load_steps"]
        trace.append(observe(scheduler, output.num_scheduled_tokens, preemptions))
        arrived = {name for name, due in loading.items() if due == step}
        scheduler.update_from_output(output, sample(scheduler, list(output.num_scheduled_tokens), entries, arrived))
        step += 1
    return trace


def main() -> None:
    init_none_hash(sha256)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
            "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 1000,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "float32",
        }  # fmt: skip
        Path(directory, "config.json").write_text(json.dumps(config))
        traces = [run(scenario, directory) for scenario in json.load(sys.stdin)]
    json.dump(traces, sys.stdout)


if __name__ == "__main__":
    main()
