"""What a worker says of itself: identity of the model, shape of the KV, address for peers."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.base import WorkerIdentity
from engine.config import EngineConfig, Link
from engine.vllm.launch import Core
from engine.vllm.settings import served_name
from engine.vllm.tickets import engine_id
from proto.worker import WorkerInfo
from transfer.links import Transport, offered, ucx_settings

_SAMPLES = 16
_SAMPLE_BYTES = 1 << 16


def describe(
    config: EngineConfig, identity: WorkerIdentity, core: Core, ranks: Sequence[Mapping[str, Any]]
) -> WorkerInfo:
    """`ranks` is what each rank's connector says of its KV."""
    import vllm

    model, cache = core.config.model_config, core.config.cache_config
    block_bytes = sum(int(rank["bytes_per_block"]) for rank in ranks)
    return WorkerInfo(
        worker_id=identity.worker_id,
        epoch=identity.epoch,
        role=identity.role,
        model=served_name(config),
        model_path=config.model,
        model_hash=model_hash(Path(config.model)),
        revision=model.revision or "",
        dtype=str(model.dtype).removeprefix("torch."),
        kv_layout=str(ranks[0]["layout"]),
        block_size_tokens=cache.block_size,
        blocks_total=cache.num_gpu_blocks - 1,  # block 0 is padding
        kv_bytes_per_token=block_bytes // cache.block_size,
        tp=config.tp,
        pp=config.pp,
        engine="vllm",
        engine_version=str(vllm.__version__),
        max_model_len=model.max_model_len,
        max_num_seqs=config.max_num_seqs,
        eos_token_ids=_eos_token_ids(core),
        vocab_size=model.get_vocab_size(),
        topology=offered(core.topology, _ucx_tls(config, core)),
        kv_lease_s=config.kv_lease_s,
        peer_params=json.dumps(
            {
                "engine_id": engine_id(identity.worker_id, identity.epoch),
                "host": config.kv_host,
                "port": core.port,
                "tp": config.tp,
                "pp": config.pp,
            }
        ).encode(),
        hands_over=True,
    )


def _ucx_tls(config: EngineConfig, core: Core) -> str:
    """As the engine's processes have it: the operator's own variable wins."""
    wanted = None if config.link is Link.AUTO else Transport(config.link)
    return os.environ.get("UCX_TLS") or ucx_settings(core.topology, wanted).get("UCX_TLS", "")


def _eos_token_ids(core: Core) -> tuple[int, ...]:
    ids = core.inputs.generation_config_fields.get("eos_token_id") or []
    found = {ids} if isinstance(ids, int) else set(ids)
    primary = core.inputs.renderer.get_eos_token_id()
    return tuple(sorted(found | ({primary} if primary is not None else set())))


def model_hash(directory: Path) -> str:
    """Two workers with the same hash hold the same model. Weights are sampled: reading them all takes minutes."""
    digest = hashlib.sha256()
    if not directory.is_dir():
        return hashlib.sha256(str(directory).encode()).hexdigest()
    for path in sorted(directory.iterdir()):
        if path.suffix in (".json", ".jinja") and not path.name.startswith("."):
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix in (".safetensors", ".bin"):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}".encode())
            with path.open("rb") as weights:
                for sample in range(_SAMPLES):
                    weights.seek(sample * max(0, size - _SAMPLE_BYTES) // max(1, _SAMPLES - 1))
                    digest.update(weights.read(_SAMPLE_BYTES))
    return digest.hexdigest()
