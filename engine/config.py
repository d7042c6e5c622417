"""Everything an operator can set on an engine. Unknown keys are errors."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Backend(StrEnum):
    VLLM = "vllm"
    SIMULATED = "simulated"


class Link(StrEnum):
    """How KV moves between two workers; AUTO picks the fastest that both ends have."""

    AUTO = "auto"
    NVLINK = "nvlink"
    RDMA = "rdma"
    SHM = "shm"
    TCP = "tcp"


class EngineConfig(BaseModel):
    """One engine on one TP group; the simulated engine ignores what does not concern it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Backend = Backend.VLLM
    model: str = Field("", description="Directory of the model (a hub id where a hub is reachable).")
    served_name: str = Field("", description="Name clients use; the last part of `model` when empty.")
    tp: int = Field(1, ge=1)
    pp: int = Field(1, ge=1)
    dtype: str = Field("auto", description="auto: float32 on CPUs, bfloat16 on GPUs.")
    max_model_len: int | None = Field(None, ge=1, description="The model's own window when unset.")
    max_num_seqs: int = Field(64, ge=1)
    max_num_batched_tokens: int | None = Field(None, ge=1)
    block_size_tokens: int | None = Field(None, ge=1)
    kv_cache_gib: float | None = Field(None, gt=0, description="KV space per rank on CPUs, or a cap on GPUs.")
    kv_blocks: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Overrides the KV space with a number of blocks (tests)."
    )
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    compact_json: bool = Field(
        False,
        description="JSON that follows a schema, forced tool calls too, has no white space between its parts, or one space after a "
        "comma: for models that write it without end, which is valid JSON. Schemas that xgrammar cannot follow are refused then.",
    )
    seed: int = 0
    kv_lease_s: float = Field(30.0, gt=0, description="How long KV stays pinned for a reader.")
    kv_host: str = Field(
        "127.0.0.1",
        description="Address at which peers' engines reach this one to hand-shake; that of the worker when not set.",
    )
    link: Link = Link.AUTO
    nixl_poll_delay_us: int | None = Field(
        None,
        ge=0,
        description="Delay of NIXL's progress thread; unset: 1000 without RDMA, 0 (busy polling) with it.",
    )
    omp_threads: int | None = Field(
        None, ge=1, description="CPU threads per rank; half the cores over the ranks when unset."
    )
    profile: str = Field(
        "", description="Simulated engine: which hardware and model to imitate, e.g. h200-sxm/llama-3.1-8b."
    )
    speedup: float = Field(1.0, gt=0, description="Simulated engine: how much faster than real time.")
    faults: str = Field("", description="Simulated engine: a file with a fault script.")
