"""From our configuration to vLLM's arguments and the environment of its processes."""

import math
import os
from pathlib import Path
from typing import Any

from engine.base import WorkerIdentity
from engine.config import EngineConfig, Link
from engine.vllm.tickets import engine_id
from proto.worker import Topology
from transfer.links import Transport, poll_delay_us, ucx_settings
from transfer.nixl.plugin import OWNER_PID, POLL_DELAY_US

_GIB = 1 << 30
#: KV space on CPUs when nothing is said: 181 blocks of 128 tokens of the demo model.
_CPU_KV_GIB = 1.0
#: Tokens of one step on CPUs. A step cannot be interrupted, so this bounds how long a cancel waits for it.
CPU_STEP_TOKENS = 256


def environment(config: EngineConfig, topology: Topology, port: int) -> dict[str, str]:
    """Variables for the engine's processes; what the operator has set in the environment wins."""
    wanted = None if config.link is Link.AUTO else Transport(config.link)
    delay = poll_delay_us(topology) if config.nixl_poll_delay_us is None else config.nixl_poll_delay_us
    ranks = config.tp * config.pp
    defaults = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "NIXL_LOG_LEVEL": "WARN",
        "VLLM_NO_USAGE_STATS": "1",
        "UCX_RCACHE_MAX_UNRELEASED": "1024",  # vLLM sets it too, but only if NIXL has not been imported before
    } | ucx_settings(topology, wanted)
    if Path(config.model).is_dir():
        defaults["HF_HUB_OFFLINE"] = "1"
    if topology.device == "cpu":
        threads = config.omp_threads or max(1, len(os.sched_getaffinity(0)) // 2 // ranks)
        defaults |= {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    forced = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": config.kv_host,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port),
        OWNER_PID: str(os.getpid()),
        POLL_DELAY_US: str(delay),
    }
    if config.omp_threads is not None:
        forced["OMP_NUM_THREADS"] = str(config.omp_threads)
    if topology.device == "cpu" and ranks == 1:
        # On CPUs vLLM gives every rank a process of its own unless this is 0: one process less to start and to feed.
        forced["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return {name: value for name, value in defaults.items() if name not in os.environ} | forced


def engine_args(config: EngineConfig, identity: WorkerIdentity, device: str) -> Any:
    """vLLM's AsyncEngineArgs."""
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    on_cpu = device == "cpu"
    kv_gib = config.kv_cache_gib or (_CPU_KV_GIB if on_cpu else None)
    return AsyncEngineArgs(
        model=config.model,
        served_model_name=served_name(config),
        dtype=_dtype(config.dtype, on_cpu),
        tensor_parallel_size=config.tp,
        pipeline_parallel_size=config.pp,
        distributed_executor_backend="uni" if config.tp * config.pp == 1 else "mp",
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens or (CPU_STEP_TOKENS if on_cpu else None),
        block_size=config.block_size_tokens,
        kv_cache_memory_bytes=None if kv_gib is None else int(kv_gib * _GIB),
        num_gpu_blocks_override=None if config.kv_blocks is None else config.kv_blocks + 1,  # one is padding
        gpu_memory_utilization=config.gpu_memory_utilization,
        enable_prefix_caching=config.enable_prefix_caching,
        enforce_eager=config.enforce_eager or on_cpu,
        structured_outputs_config=_structured_outputs(config),
        seed=config.seed,
        scheduling_policy="priority",
        enable_logging_iteration_details=True,  # tells steps that computed from those that only waited
        use_tqdm_on_load=False,
        worker_extension_cls="transfer.nixl.extension.WorkerExtension",
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_connector_module_path="transfer.nixl.connector",
            kv_role="kv_both",  # roles belong to the registry, not to the launch
            engine_id=engine_id(identity.worker_id, identity.epoch),
            kv_connector_extra_config={"kv_lease_duration": math.ceil(config.kv_lease_s)},
            kv_load_failure_policy="fail",  # recovery belongs to the gateway
        ),
    )


def _structured_outputs(config: EngineConfig) -> Any:
    """By itself vLLM takes the backend that a schema needs, and only two of them can leave white space out."""
    from vllm.config import StructuredOutputsConfig

    if not config.compact_json:
        return StructuredOutputsConfig()
    return StructuredOutputsConfig(backend="xgrammar", disable_any_whitespace=True)


def served_name(config: EngineConfig) -> str:
    return config.served_name or Path(config.model).name


def _dtype(wanted: str, on_cpu: bool) -> str:
    if wanted != "auto":
        return wanted
    return "float32" if on_cpu else "bfloat16"
