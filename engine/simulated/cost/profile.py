"""A profile: everything the simulated engine must know of a model on a TP group."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.simulated.cost.expert_load import ExpertLoad
from engine.simulated.cost.step_cost import StepCost


@dataclass(frozen=True, slots=True)
class Link:
    """One way to move KV between two engines. The latency is paid once a transfer."""

    bytes_per_s: float
    latency_s: float

    def transfer_s(self, size_bytes: int) -> float:
        return self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Profile:
    """Shape, capacity and cost of one engine. `kv_bytes_per_token` is what one transfer of a token's KV moves.

    Change a field with `dataclasses.replace`; `links` maps a transport ("nvlink", "rdma", "tcp") to its link,
    `sharing` a kind of step ("decode", "prefill") to its slowdown while a neighbour on the same cores is at work.
    `expert_load`: of experts that are chosen unevenly. `group_link`: whether the ranks exchange over a link that was named, and not over the table's, which is that of one node.
    """

    name: str
    model: str
    device: str
    dtype: str
    tp: int
    pp: int
    ep: int
    block_size_tokens: int
    blocks_total: int
    kv_bytes_per_token: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    cost: StepCost
    links: Mapping[str, Link] = field(default_factory=dict)
    sharing: Mapping[str, float] = field(default_factory=dict)
    group_link: bool = False
    expert_load: ExpertLoad | None = None

    @property
    def kv_tokens_total(self) -> int:
        return self.blocks_total * self.block_size_tokens
