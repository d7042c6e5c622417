"""From configuration to the facts the engine runs on."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from engine.base import WorkerIdentity
from engine.config import EngineConfig
from engine.simulated.cost import Profile, load_profile
from engine.simulated.limits import Limits
from engine.simulated.vocabulary import Vocabulary, load_vocabulary
from engine.simulated.waiting import Policy
from proto.worker import Topology, WorkerInfo
from transfer.links import local_topology

DEFAULT_PROFILE = "toy"
#: Mean length of an answer that nothing else ends, in tokens.
MEAN_ANSWER = 256


@dataclass(frozen=True, slots=True)
class Setup:
    """One engine's facts, constant for its life."""

    config: EngineConfig
    identity: WorkerIdentity
    profile: Profile
    vocabulary: Vocabulary
    limits: Limits

    @property
    def model_name(self) -> str:
        if self.config.served_name:
            return self.config.served_name
        return Path(self.config.model).name if self.config.model else self.profile.model

    @property
    def topology(self) -> Topology:
        """This machine, as far as the profile has links for it."""
        local = local_topology("simulated")
        domain = (local.nvlink_domain or local.host) if "nvlink" in self.profile.links else ""
        return replace(local, transports=tuple(self.profile.links), nvlink_domain=domain)

    def info(self, peer_params: bytes) -> WorkerInfo:
        profile, config, identity = self.profile, self.config, self.identity
        return WorkerInfo(
            worker_id=identity.worker_id,
            epoch=identity.epoch,
            role=identity.role,
            model=self.model_name,
            model_path=config.model,
            model_hash=hashlib.sha256(f"simulated:{profile.model}:{self.model_name}".encode()).hexdigest(),
            revision="",
            dtype=profile.dtype,
            kv_layout="simulated",
            block_size_tokens=self.limits.block_size,
            blocks_total=self.limits.blocks,
            kv_bytes_per_token=profile.kv_bytes_per_token,
            tp=profile.tp,
            pp=profile.pp,
            engine="simulated",
            engine_version=f"1 ({profile.name})",
            max_model_len=self.limits.max_model_len,
            max_num_seqs=self.limits.max_num_seqs,
            eos_token_ids=self.vocabulary.eos,
            vocab_size=self.vocabulary.size,
            topology=self.topology,
            kv_lease_s=config.kv_lease_s,
            peer_params=peer_params,
            hands_over=True,
        )


def profile_of(config: EngineConfig) -> Profile:
    """The profile as it is by itself. Raises ValueError where there is none of that name and layout."""
    said = config.model_fields_set
    return load_profile(
        config.profile or DEFAULT_PROFILE,
        tp=config.tp if "tp" in said else None,
        pp=config.pp if "pp" in said else None,
        gpu_memory_utilization=config.gpu_memory_utilization if "gpu_memory_utilization" in said else None,
        dtype=None if config.dtype == "auto" else config.dtype,
    )


def set_up(config: EngineConfig, identity: WorkerIdentity) -> Setup:
    """Reads profile and vocabulary. What the configuration sets goes before the profile; its defaults do not."""
    said = config.model_fields_set
    profile = profile_of(config)
    block_size = config.block_size_tokens or profile.block_size_tokens
    blocks = profile.kv_tokens_total // block_size
    if config.kv_cache_gib is not None:
        block_bytes = profile.kv_bytes_per_token * block_size
        blocks = int(config.kv_cache_gib * 2**30 / block_bytes)
        if not blocks:
            raise ValueError(f"engine.kv_cache_gib: {config.kv_cache_gib} GiB hold no KV block of {block_bytes} bytes")
    profile = replace(
        profile,
        block_size_tokens=block_size,
        blocks_total=config.kv_blocks or blocks,
        max_model_len=config.max_model_len or profile.max_model_len,
        max_num_seqs=config.max_num_seqs if "max_num_seqs" in said else profile.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens or profile.max_num_batched_tokens,
    )
    vocabulary = load_vocabulary(config.model, profile.vocab_size, profile.eos_token_ids)
    return Setup(config, identity, profile, vocabulary, limits_of(profile, caching=config.enable_prefix_caching))


def limits_of(profile: Profile, *, caching: bool = True) -> Limits:
    """What bounds a step of an engine with this profile."""
    return Limits(
        block_size=profile.block_size_tokens,
        blocks=profile.blocks_total,
        max_num_seqs=profile.max_num_seqs,
        max_batched_tokens=profile.max_num_batched_tokens,
        max_model_len=profile.max_model_len,
        policy=Policy.PRIORITY,  # as the real engine is configured
        caching=caching,
    )
