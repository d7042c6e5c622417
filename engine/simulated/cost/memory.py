"""What fills a GPU's memory while it serves, and how many tokens of KV are left room for."""

from dataclasses import dataclass

from engine.simulated.cost.models import ModelShape
from engine.simulated.cost.table import Layout

#: What vLLM gives itself by default.
UTILISATION = 0.9


class DoesNotFitError(ValueError):
    """The layout's weights leave no room for KV; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class HbmBudget:
    """Bytes of one GPU. `limit_bytes` is what the engine may use; the five parts below it add up to it.

    `fragmentation_bytes` is the share of the KV space that half-filled last blocks and the working memory of a
    step are expected to take; the second is not available for KV, the first is inside `kv_bytes`.
    """

    gpu_bytes: int
    limit_bytes: int
    weights_bytes: int
    activation_bytes: int
    comm_bytes: int
    runtime_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    half_filled_bytes: int

    @property
    def kv_tokens(self) -> int:
        return self.kv_bytes // self.kv_bytes_per_token

    @property
    def fragmentation_bytes(self) -> int:
        return self.activation_bytes + self.half_filled_bytes


def hbm_budget(
    shape: ModelShape,
    layout: Layout,
    gpu_bytes: int,
    *,
    pp: int = 1,
    utilisation: float = UTILISATION,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    block_size_tokens: int = 16,
) -> HbmBudget:
    """Raises DoesNotFitError when nothing is left for KV."""
    use = layout.memory
    if use is None:
        raise ValueError(f"the table of {shape.name} says nothing of memory")
    weights = use.weights_bytes // pp
    activations = max(use.activation_floor_bytes, round(use.activation_bytes_per_token * max_num_batched_tokens))
    limit = int(gpu_bytes * utilisation)
    kv = limit - weights - activations - use.comm_bytes - use.runtime_bytes
    per_token = shape.kv_bytes_per_rank(layout.tp, pp)
    if kv < per_token * block_size_tokens:
        raise DoesNotFitError(
            f"{shape.name} at tp={layout.tp} pp={pp} leaves no room for KV: weights {weights / 2**30:.1f} GiB of "
            f"{limit / 2**30:.1f} GiB usable a GPU; use more GPUs (tp, pp)"
        )
    return HbmBudget(
        gpu_bytes=gpu_bytes,
        limit_bytes=limit,
        weights_bytes=weights,
        activation_bytes=activations,
        comm_bytes=use.comm_bytes,
        runtime_bytes=use.runtime_bytes,
        kv_bytes=kv,
        kv_bytes_per_token=per_token,
        half_filled_bytes=min(kv, max_num_seqs * (block_size_tokens - 1) // 2 * per_token),
    )
