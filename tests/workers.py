"""One worker's description, for tests that need some worker."""

from dataclasses import replace
from typing import Any

from proto.worker import Role, Topology, WorkerInfo


def worker_info(worker_id: str = "w", **more: Any) -> WorkerInfo:
    """A small one that does both phases; `more` are the fields that matter to the test."""
    base = WorkerInfo(
        worker_id=worker_id,
        epoch="e",
        role=Role.BOTH,
        model="m",
        model_path="",
        model_hash="h",
        revision="r",
        dtype="float32",
        kv_layout="NHD",
        block_size_tokens=16,
        blocks_total=100,
        kv_bytes_per_token=1000,
        tp=1,
        pp=1,
        engine="scripted",
        engine_version="1",
        max_model_len=1024,
        max_num_seqs=8,
        eos_token_ids=(2,),
        vocab_size=1000,
        topology=Topology("here"),
        kv_lease_s=30.0,
    )
    return replace(base, **more)
